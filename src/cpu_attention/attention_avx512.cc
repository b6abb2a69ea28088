#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsAvx512() {
  return kAttentionKernels;
}

}  // namespace tandem
