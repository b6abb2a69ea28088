#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"
#include "ops/cuda/rows/gather_rows.h"

namespace tandem {
namespace {

constexpr int kThreads = 128;
constexpr int kUnitsPerThread = 4;  // in flight

// A CTA copies kThreads * kUnitsPerThread units of one row; strides and counts are in units.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    GatherRowsKernel(const Unit* in, int64_t in_rows, int64_t in_stride, const int32_t* indices,
                     int32_t first_index, Unit* out, int64_t out_stride, int row_units, int parts) {
  AllowSuccessors();
  const int64_t row = blockIdx.x / parts;
  const int begin = static_cast<int>(blockIdx.x % parts) * kThreads * kUnitsPerThread + threadIdx.x;
  WaitForPredecessors();
  const int64_t index = int64_t{indices[row]} - first_index;
  const bool exists = index >= 0 && index < in_rows;
  const Unit* from = in + index * in_stride;
  Unit units[kUnitsPerThread];
#pragma unroll
  for (int i = 0; i < kUnitsPerThread; ++i) {
    const int at = begin + i * kThreads;
    units[i] = exists && at < row_units ? from[at] : Unit{};
  }
#pragma unroll
  for (int i = 0; i < kUnitsPerThread; ++i) {
    const int at = begin + i * kThreads;
    if (at < row_units) out[row * out_stride + at] = units[i];
  }
}

template <typename Unit>
void Launch(std::string_view op, CudaStream& stream, const MatrixView& in, const int32_t* indices,
            const MatrixView& out, int32_t first_index) {
  const int64_t element_bytes = static_cast<int64_t>(DTypeSize(out.dtype));
  const auto units = [&](int64_t elements) {
    return elements * element_bytes / static_cast<int64_t>(sizeof(Unit));
  };
  const auto row_units = static_cast<int>(units(out.cols));
  const unsigned parts = CeilDivide(row_units, kThreads * kUnitsPerThread);
  LaunchRowKernel<GatherRowsKernel<Unit>>(op, static_cast<unsigned>(out.rows) * parts, kThreads, stream,
                                          static_cast<const Unit*>(in.data), in.rows, units(in.row_stride),
                                          indices, first_index, static_cast<Unit*>(out.data),
                                          units(out.row_stride), row_units, static_cast<int>(parts));
}

}  // namespace

void LaunchGatherRows(std::string_view op, CudaStream& stream, const MatrixView& in, const int32_t* indices,
                      const MatrixView& out, int32_t first_index) {
  TANDEM_CHECK(in.cols == out.cols && in.dtype == out.dtype && indices != nullptr,
               "{}: in [{}, {}] {}, out [{}, {}] {}", op, in.rows, in.cols, DTypeName(in.dtype), out.rows,
               out.cols, DTypeName(out.dtype));
  if (out.rows == 0 || out.cols == 0) return;
  if (RowsAligned16(in) && RowsAligned16(out) &&
      static_cast<size_t>(out.cols) * DTypeSize(out.dtype) % 16 == 0) {
    Launch<uint4>(op, stream, in, indices, out, first_index);
  } else if (DTypeSize(out.dtype) == 4) {
    Launch<uint32_t>(op, stream, in, indices, out, first_index);
  } else {
    Launch<uint16_t>(op, stream, in, indices, out, first_index);
  }
}

void CudaOps::GatherRows(Stream& stream, const GatherRowsArgs& args) {
  LaunchGatherRows("gather_rows", AsCudaStream(stream), args.in, args.indices, args.out);
}

}  // namespace tandem
