// Copies of whole rows by index.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

// out[i, :] = in[indices[i], :], any dtype, both the same. A row whose index is not in [0, in.rows) becomes
// zero.
void LaunchGatherRows(std::string_view op, CudaStream& stream, const MatrixView& in, const int32_t* indices,
                      const MatrixView& out);

}  // namespace tandem
