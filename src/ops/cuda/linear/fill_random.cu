#include <algorithm>

#include "base/hashed_uniform.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/fill_random.h"
#include "ops/cuda/row_access.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

struct AsTheyLie {
  __device__ __forceinline__ int64_t operator()(int64_t index) const { return index; }
};

// Index among the elements of the rows in logical order.
struct InGateUpOrder {
  GateUpOrder order;
  int64_t cols;

  __device__ __forceinline__ int64_t operator()(int64_t index) const {
    const int64_t row = index / cols;
    return index + (order.LogicalRow(row) - row) * cols;
  }
};

template <typename T, typename LogicalIndex>
__global__ void __launch_bounds__(kThreads)
    FillRandomKernel(T* data, int64_t count, LogicalIndex logical_index, uint64_t seed, float bound) {
  AllowSuccessors();
  WaitForPredecessors();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * 8;
  for (int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 8; begin < count;
       begin += step) {
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = HashedUniform(seed, static_cast<uint64_t>(logical_index(begin + i)), bound);
    }
    if (begin + 8 <= count) {
      Run<T, 8> run;
      run.Set(values);
      run.Store(data + begin);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (begin + i < count) data[begin + i] = RoundTo<T>(values[i]);
      }
    }
  }
}

}  // namespace

void LaunchFillRandom(CudaStream& stream, const MatrixView& matrix, uint64_t seed, float bound,
                      const GateUpOrder* order) {
  TANDEM_CHECK(IsFloatType(matrix.dtype) && matrix.row_stride == matrix.cols && IsAligned16(matrix.data),
               "fill_random: [{}, {}] {}, row stride {}", matrix.rows, matrix.cols, DTypeName(matrix.dtype),
               matrix.row_stride);
  const int64_t count = matrix.rows * matrix.cols;
  if (count == 0) return;
  const unsigned grid =
      std::min(CeilDivide(count, int64_t{8} * kThreads), static_cast<unsigned>(stream.target().num_sms) * 16);
  WithElementType(matrix.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    const auto launch = [&](auto logical_index) {
      LaunchKernel("fill_random", FillRandomKernel<T, decltype(logical_index)>, grid, kThreads, 0, stream,
                   static_cast<T*>(matrix.data), count, logical_index, seed, bound);
    };
    if (order == nullptr) {
      launch(AsTheyLie{});
    } else {
      launch(InGateUpOrder{*order, matrix.cols});
    }
  });
}

void CudaOps::FillRandom(Stream& stream, const MatrixView& matrix, uint64_t seed, float bound) {
  LaunchFillRandom(AsCudaStream(stream), matrix, seed, bound);
}

}  // namespace tandem
