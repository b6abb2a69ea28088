// Compiled with -mavx2.
#include "load/conversion_kernels.h"
#include "load/conversion_sets.h"

namespace tandem {

void ConvertAvx2(GgmlType type, uint32_t block_elements, uint32_t block_bytes, const uint8_t* src,
                 int64_t num_elements, DType dtype, void* dst) {
  ConvertChunks(type, block_elements, block_bytes, src, num_elements, dtype, dst);
}

}  // namespace tandem
