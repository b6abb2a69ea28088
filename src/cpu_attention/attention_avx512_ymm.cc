#define TANDEM_VECTORS_OF_256_BITS
#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsAvx512Ymm() {
  return kAttentionKernels;
}

}  // namespace tandem
