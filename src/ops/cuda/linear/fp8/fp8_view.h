// Weights of FP8 (E4M3) in GPU memory, in plain numbers, for host and device.
#pragma once

#include <cstdint>

#include "base/weight_format.h"

namespace tandem {

// Elements of in_features that a kernel multiplies at a time.
constexpr int kFp8Slice = 128;

// Rows as they are: what cuBLASLt multiplies. The own kernel reads them too, so that there is one copy.
struct Fp8View {
  const uint8_t* codes = nullptr;  // [out, in], 256-byte aligned
  const float* scales = nullptr;   // [out, num_groups()]
  int64_t out_features = 0;
  int64_t in_features = 0;  // a multiple of 16
  int64_t group_size = 0;   // in_features, or a multiple of kFp8Slice that divides it

  constexpr int64_t num_groups() const { return in_features / group_size; }
  constexpr bool has_row_scales() const { return group_size == in_features; }
};

// Whether weights of a format, with rows of in_features, can lie so.
constexpr bool HasFp8Layout(const WeightFormat& format, int64_t in_features) {
  if (format.encoding != WeightEncoding::kFp8 || format.group_size <= 0) return false;
  if (in_features % 16 != 0 || in_features > (1 << 24)) return false;
  return format.group_size == in_features ||
         (format.group_size % kFp8Slice == 0 && in_features % format.group_size == 0);
}

}  // namespace tandem
