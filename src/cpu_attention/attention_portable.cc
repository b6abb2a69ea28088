#include "cpu_attention/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsPortable() {
  return kAttentionKernels;
}

}  // namespace tandem
