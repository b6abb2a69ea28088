#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsNeonDot() {
  return kAttentionKernels;
}

}  // namespace tandem
