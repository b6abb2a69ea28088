#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsAvx2() {
  return kAttentionKernels;
}

}  // namespace tandem
