// Copies of whole rows by index.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// out[i, :] = in[indices[i] - first_index, :], any dtype, both the same. A row whose index is not in
// [first_index, first_index + in.rows) becomes zero.
void LaunchGatherRows(std::string_view op, CudaStream& stream, const MatrixView& in, const int32_t* indices,
                      const MatrixView& out, int32_t first_index = 0);

}  // namespace tandem
