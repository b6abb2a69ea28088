// What 16-byte accesses need of addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/matrix_view.h"

namespace tandem {

inline bool IsAligned16(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}
// Every row starts at a multiple of 16 bytes.
inline bool RowsAligned16(const MatrixView& matrix) {
  return IsAligned16(matrix.data) &&
         static_cast<size_t>(matrix.row_stride) * DTypeSize(matrix.dtype) % 16 == 0;
}

}  // namespace tandem
