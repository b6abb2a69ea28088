#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsAvx512Bf16() {
  return kAttentionKernels;
}

}  // namespace tandem
