// Matrix products through oneDNN, one thread a call.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tandem {

// y[rows, cols] = x[rows, depth] W + bias, W in whole panels (linear_weight.h).
struct OneDnnProduct {
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* panels = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  DType dtype = DType::kF32;  // of x and W
  DType y_dtype = DType::kF32;
};

// Runs on the calling thread, any number of threads at a time. False, and nothing is done, if oneDNN has only
// its reference implementation for the product, which is hundreds of times slower than the own kernels.
bool RunOneDnnProduct(const OneDnnProduct& product);

}  // namespace tandem
