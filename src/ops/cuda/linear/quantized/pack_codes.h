// Brings rows of codes to where the kernels want them.
#pragma once

#include <cstdint>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/quantized/code_layout.h"

namespace tandem {

// GPU memory, dense. groups: of group_size elements, which may be several stored ones.
struct RowsToPack {
  int64_t num_rows = 0;
  int64_t group_size = 0;
  const uint8_t* codes = nullptr;     // [num_rows, in_features]
  const uint16_t* numbers = nullptr;  // [num_rows, groups, 1 or 2] fp16: scale, then minimum if there is one
  const float* factors = nullptr;     // [num_rows]
  const int32_t* places = nullptr;    // [num_rows]: the output that a row becomes
};

void LaunchPackCodes(CudaStream& stream, const RowsToPack& rows, const CodesView& to);

}  // namespace tandem
