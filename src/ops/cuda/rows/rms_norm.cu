#include <algorithm>
#include <string_view>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"

namespace tandem {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / 32;
constexpr int kWidth = 4;
// Up to this many threads with two runs each, four runs beyond.
constexpr int kMaxThreadsOfTwo = 512;
// CTAs of so many that an SM has registers for.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kCtasOfTwo = 2;
#else
constexpr int kCtasOfTwo = 3;
#endif

__device__ __forceinline__ float SumOfWarp(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0U, value, distance);
  return value;
}

// Of the CTA, in every thread. Once a kernel: the shared memory is not reused.
__device__ __forceinline__ float SumOfBlock(float value) {
  __shared__ float4 warps[kMaxWarps / 4];
  value = SumOfWarp(value);
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  if (num_warps == 1) return value;
  const int thread = static_cast<int>(threadIdx.x);
  auto* sums = reinterpret_cast<float*>(warps);
  if (thread % 32 == 0) sums[thread / 32] = value;
  if (thread >= num_warps && thread < kMaxWarps) sums[thread] = 0.0F;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half * kMaxWarps / 2 >= num_warps) break;
#pragma unroll
    for (int i = 0; i < kMaxWarps / 8; ++i) {
      const float4 four = warps[half * kMaxWarps / 8 + i];
      sum += (four.x + four.y) + (four.z + four.w);
    }
  }
  return sum;
}

struct RmsNormKernelArgs {
  float* residual;
  int64_t residual_stride;
  const void* delta;  // nullptr: none
  int64_t delta_stride;
  const float* weight;
  float inverse_cols;
  float eps;
  void* out;
  int64_t out_stride;
  int cols;
};

// A row a CTA, held in registers: thread t has the runs t, t + blockDim.x, ... of kWidth elements. All its
// loads are under way before the first value is used.
template <typename Delta, typename Out, int kRuns>
__global__ void __launch_bounds__(kRuns == 2 ? kMaxThreadsOfTwo : kMaxThreads, kRuns == 2 ? kCtasOfTwo : 1)
    AddRmsNormKernel(RmsNormKernelArgs args) {
  AllowSuccessors();
  float* residual = args.residual + blockIdx.x * args.residual_stride;
  const Delta* delta = static_cast<const Delta*>(args.delta) + blockIdx.x * args.delta_stride;
  Out* out = static_cast<Out*>(args.out) + blockIdx.x * args.out_stride;
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const int step = static_cast<int>(blockDim.x) * kWidth;

  Run<float, kWidth> weight[kRuns];
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int col = first + i * step;
    if (col < args.cols) weight[i].Load(args.weight + col);
  }
  WaitForPredecessors();
  Run<float, kWidth> sums[kRuns];
  Run<Delta, kWidth> deltas[kRuns];
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int col = first + i * step;
    if (col >= args.cols) continue;
    sums[i].Load(residual + col);
    if (args.delta != nullptr) deltas[i].Load(delta + col);
  }
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int col = first + i * step;
    if (col >= args.cols) continue;
    float values[kWidth];
    sums[i].Get(values);
    if (args.delta != nullptr) {
      float added[kWidth];
      deltas[i].Get(added);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values[j] += added[j];
      sums[i].Set(values);
      sums[i].Store(residual + col);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) squares += values[j] * values[j];
  }
  const float factor = rsqrtf(SumOfBlock(squares) * args.inverse_cols + args.eps);
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int col = first + i * step;
    if (col >= args.cols) continue;
    float values[kWidth];
    float weights[kWidth];
    sums[i].Get(values);
    weight[i].Get(weights);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = weights[j] * (values[j] * factor);
    Run<Out, kWidth> result;
    result.Set(values);
    result.Store(out + col);
  }
}

// Rows of any width and alignment: the row is read twice.
template <typename Delta, typename Out>
__global__ void __launch_bounds__(kMaxThreads) AddRmsNormAnyKernel(RmsNormKernelArgs args) {
  AllowSuccessors();
  float* residual = args.residual + blockIdx.x * args.residual_stride;
  const Delta* delta = static_cast<const Delta*>(args.delta) + blockIdx.x * args.delta_stride;
  Out* out = static_cast<Out*>(args.out) + blockIdx.x * args.out_stride;
  WaitForPredecessors();
  float squares = 0.0F;
  for (int col = static_cast<int>(threadIdx.x); col < args.cols; col += static_cast<int>(blockDim.x)) {
    float value = residual[col];
    if (args.delta != nullptr) {
      value += ToFloat(delta[col]);
      residual[col] = value;
    }
    squares += value * value;
  }
  const float factor = rsqrtf(SumOfBlock(squares) * args.inverse_cols + args.eps);
  for (int col = static_cast<int>(threadIdx.x); col < args.cols; col += static_cast<int>(blockDim.x)) {
    out[col] = RoundTo<Out>(args.weight[col] * (residual[col] * factor));
  }
}

// cols spread over whole warps of threads with `each` elements a thread.
unsigned NumThreads(int64_t cols, int64_t each) {
  return CeilDivide(cols, each * 32) * 32;
}

// The kernel and its threads follow from the width alone, so that a row's sum is added up in the same order
// whatever the number of rows.
template <typename Delta, typename Out>
void LaunchAddRmsNorm(CudaStream& stream, const RmsNormKernelArgs& args, int64_t rows, bool wide) {
  constexpr std::string_view kOp = "add_rms_norm";
  const auto grid = static_cast<unsigned>(rows);
  if (wide && args.cols <= 2 * kWidth * kMaxThreadsOfTwo) {
    LaunchRowKernel<AddRmsNormKernel<Delta, Out, 2>>(kOp, grid, NumThreads(args.cols, 2 * kWidth), stream,
                                                     args);
  } else if (wide && args.cols <= 4 * kWidth * kMaxThreads) {
    LaunchRowKernel<AddRmsNormKernel<Delta, Out, 4>>(kOp, grid, NumThreads(args.cols, 4 * kWidth), stream,
                                                     args);
  } else {
    LaunchRowKernel<AddRmsNormAnyKernel<Delta, Out>>(
        kOp, grid, std::min<unsigned>(kMaxThreads, NumThreads(args.cols, 1)), stream, args);
  }
}

}  // namespace

void CudaOps::AddRmsNorm(Stream& stream, const AddRmsNormArgs& args) {
  const bool has_delta = args.delta.data != nullptr;
  TANDEM_CHECK(args.residual.dtype == DType::kF32 && args.residual.rows == args.out.rows &&
                   args.residual.cols == args.out.cols && args.weight != nullptr,
               "add_rms_norm: residual [{}, {}] {}, out [{}, {}]", args.residual.rows, args.residual.cols,
               DTypeName(args.residual.dtype), args.out.rows, args.out.cols);
  TANDEM_CHECK(!has_delta || (args.delta.rows == args.out.rows && args.delta.cols == args.out.cols),
               "add_rms_norm: delta [{}, {}], out [{}, {}]", args.delta.rows, args.delta.cols, args.out.rows,
               args.out.cols);
  const DType delta_dtype = has_delta ? args.delta.dtype : args.out.dtype;
  TANDEM_CHECK(IsFloatType(args.out.dtype) && (delta_dtype == DType::kF32 || delta_dtype == args.out.dtype),
               "add_rms_norm: delta {}, out {}", DTypeName(delta_dtype), DTypeName(args.out.dtype));
  if (args.out.rows == 0 || args.out.cols == 0) return;
  const RmsNormKernelArgs kernel_args = {
      .residual = static_cast<float*>(args.residual.data),
      .residual_stride = args.residual.row_stride,
      .delta = args.delta.data,
      .delta_stride = args.delta.row_stride,
      .weight = args.weight,
      .inverse_cols = 1.0F / static_cast<float>(args.out.cols),
      .eps = args.eps,
      .out = args.out.data,
      .out_stride = args.out.row_stride,
      .cols = static_cast<int>(args.out.cols),
  };
  const bool wide = RowsAligned16(args.residual) && (!has_delta || RowsAligned16(args.delta)) &&
                    RowsAligned16(args.out) && IsAligned16(args.weight) && args.out.cols % kWidth == 0;
  WithElementTypes</*kFromF32=*/true, /*kToF32=*/false>(
      delta_dtype, args.out.dtype, [&](auto delta_type, auto out_type) {
        LaunchAddRmsNorm<typename decltype(delta_type)::Type, typename decltype(out_type)::Type>(
            AsCudaStream(stream), kernel_args, args.out.rows, wide);
      });
}

}  // namespace tandem
