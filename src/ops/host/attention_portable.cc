#include "ops/host/attention_microkernel.h"

namespace tandem {

const AttentionKernels& AttentionKernelsPortable() {
  return kAttentionKernels;
}

}  // namespace tandem
