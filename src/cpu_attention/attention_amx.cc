#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsAmx() {
  return kAttentionKernels;
}

}  // namespace tandem
