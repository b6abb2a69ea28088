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
  __device__ __forceinline__ int64_t LogicalRow(int64_t place) const { return place; }
};

// What is filled is all there is, in the order of its elements.
struct SameIndex {
  __device__ __forceinline__ int64_t operator()(int64_t index) const { return index; }
};

// Index of an element in the matrix that it is a part of, whose rows in logical order RowOrder knows.
template <typename RowOrder>
struct IndexInMatrix {
  IndexInMatrix(const MatrixView& filled, const MatrixCut* part, const RowOrder& row_order)
      : order(row_order), cols(filled.cols), num_columns(filled.cols) {
    if (part == nullptr) return;
    part->CheckFills(filled.rows, filled.cols);
    num_columns = part->num_columns;
    first_column = part->columns.begin;
    int64_t row = 0;
    for (size_t run = 0; run < MatrixCut::kMostRuns; ++run) {
      const bool is_there = run < part->rows.size();
      first_row[run] = is_there ? row : filled.rows;
      shift[run] = is_there ? part->rows[run].begin - row : 0;
      if (is_there) row += part->rows[run].count;
    }
  }

  __device__ __forceinline__ int64_t operator()(int64_t index) const {
    const int64_t place = index / cols;
    const int64_t row = order.LogicalRow(place);
    int64_t to_matrix = shift[0];
#pragma unroll
    for (size_t run = 1; run < MatrixCut::kMostRuns; ++run) {
      if (row >= first_row[run]) to_matrix = shift[run];
    }
    return (row + to_matrix) * num_columns + first_column + index - place * cols;
  }

  RowOrder order;
  int64_t cols;
  int64_t num_columns;
  int64_t first_column = 0;
  int64_t first_row[MatrixCut::kMostRuns] = {0, INT64_MAX, INT64_MAX};
  int64_t shift[MatrixCut::kMostRuns] = {};
};

template <typename T, typename ElementIndex>
__global__ void __launch_bounds__(kThreads)
    FillRandomKernel(T* data, int64_t count, ElementIndex element_index, uint64_t seed, float bound) {
  AllowSuccessors();
  WaitForPredecessors();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * 8;
  for (int64_t begin = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 8; begin < count;
       begin += step) {
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = HashedUniform(seed, static_cast<uint64_t>(element_index(begin + i)), bound);
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

void LaunchFillRandom(CudaStream& stream, const MatrixView& matrix, const RandomValues& values,
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
    const auto launch = [&](auto element_index) {
      LaunchKernel("fill_random", FillRandomKernel<T, decltype(element_index)>, grid, kThreads, 0, stream,
                   static_cast<T*>(matrix.data), count, element_index, values.seed, values.bound);
    };
    if (order != nullptr) {
      launch(IndexInMatrix(matrix, values.part, *order));
    } else if (values.part != nullptr) {
      launch(IndexInMatrix(matrix, values.part, AsTheyLie{}));
    } else {
      launch(SameIndex{});
    }
  });
}

void CudaOps::FillRandom(Stream& stream, const MatrixView& matrix, const RandomValues& values) {
  LaunchFillRandom(AsCudaStream(stream), matrix, values);
}

}  // namespace tandem
