// What a weight does, for tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/matrix_view.h"
#include "device/device.h"
#include "ops/ops.h"

namespace tandem {

// weight x at fp32, for a fixed x; first_column: of the weight that this one is a part of.
inline std::vector<float> WeightProduct(Ops* ops, Stream* stream, const LinearWeight& weight,
                                        int64_t first_column = 0) {
  std::vector<float> x(static_cast<size_t>(weight.in_features()));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::cos(static_cast<float>(first_column) + static_cast<float>(i));
  std::vector<float> y(static_cast<size_t>(weight.out_features()));
  ops->Linear(*stream, {.x = MatrixView::Dense(x.data(), DType::kF32, 1, weight.in_features()),
                        .weight = &weight,
                        .y = MatrixView::Dense(y.data(), DType::kF32, 1, weight.out_features())});
  stream->Synchronize();
  return y;
}

}  // namespace tandem
