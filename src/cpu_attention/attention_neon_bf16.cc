#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsNeonBf16() {
  return kAttentionKernels;
}

}  // namespace tandem
