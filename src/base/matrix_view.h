// A borrowed 2-D view of device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace tandem {

// Element (r, c) lies at data + (r * row_stride + c) elements. Does not own; read-only where an op says so.
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  static MatrixView Dense(void* data, DType dtype, int64_t rows, int64_t cols) {
    return {data, dtype, rows, cols, cols};
  }
  void* RowData(int64_t row) const {
    return static_cast<std::byte*>(data) + static_cast<size_t>(row * row_stride) * DTypeSize(dtype);
  }
  // Rows [begin, begin + count).
  MatrixView Rows(int64_t begin, int64_t count) const {
    return {RowData(begin), dtype, count, cols, row_stride};
  }
  // Columns [begin, begin + count).
  MatrixView Columns(int64_t begin, int64_t count) const {
    return {static_cast<std::byte*>(data) + static_cast<size_t>(begin) * DTypeSize(dtype), dtype, rows, count,
            row_stride};
  }
};

}  // namespace tandem
