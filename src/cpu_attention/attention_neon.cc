#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsNeon() {
  return kAttentionKernels;
}

}  // namespace tandem
