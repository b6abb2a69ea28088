#include "load/coded_weight.h"

#include <cmath>

namespace tandem {

Status ReadScales(const SafetensorsTensor& scales, int64_t begin, int64_t count, float* dst) {
  const BlockFormat& format = GetBlockFormat(*scales.type);
  ConvertElements(*scales.type, scales.data + begin * format.block_bytes, count, DType::kF32, dst);
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(dst[i]) && dst[i] != 0.0F) continue;
    return MakeError(ErrorCode::kMalformedFile, "{}: tensor '{}' has the scale {} at place {}", scales.file,
                     scales.name, dst[i], begin + i);
  }
  return {};
}

}  // namespace tandem
