#include <cuda_fp8.h>

#include <algorithm>

#include "ops/cuda/e4m3_values.cuh"
#include "ops/cuda/linear/fp8/fp8_rows.h"
#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // elements of a thread's run
constexpr int kMaxRowThreads = 1024;
constexpr float kLargestCode = 448.0F;

__device__ __forceinline__ float LargestOfBlock(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0U, value, distance));
  __shared__ float of_warps[kMaxRowThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % 32 == 0) of_warps[thread / 32] = value;
  __syncthreads();
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  for (int warp = 0; warp < num_warps; ++warp) value = fmaxf(value, of_warps[warp]);
  return value;
}

// A row a CTA, held in registers: thread t has the runs t, t + blockDim.x, ...
template <typename T, int kRuns>
__global__ void __launch_bounds__(kMaxRowThreads)
    QuantizeToFp8Kernel(const T* x, int64_t x_stride, int cols, uint8_t* codes, float* scales) {
  AllowSuccessors();
  const T* row = x + blockIdx.x * x_stride;
  uint8_t* to = codes + blockIdx.x * static_cast<int64_t>(cols);
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const int step = static_cast<int>(blockDim.x) * kWidth;
  WaitForPredecessors();
  Run<T, kWidth> runs[kRuns];
  float largest = 0.0F;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    if (first + i * step < cols) runs[i].Load(row + first + i * step);
  }
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    if (first + i * step >= cols) continue;
    float values[kWidth];
    runs[i].Get(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) largest = fmaxf(largest, fabsf(values[j]));
  }
  largest = LargestOfBlock(largest);
  // The inverse of less would be infinite.
  constexpr float kLeast = 1e-30F;
  const float inverse = largest > kLeast ? kLargestCode / largest : 0.0F;
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    if (first + i * step >= cols) continue;
    float values[kWidth];
    runs[i].Get(values);
    uint32_t words[kWidth / 4];
#pragma unroll
    for (int w = 0; w < kWidth / 4; ++w) {
      const float* four = values + w * 4;
      const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(four[0] * inverse, four[1] * inverse),
                                                    __NV_SATFINITE, __NV_E4M3);
      const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(four[2] * inverse, four[3] * inverse),
                                                     __NV_SATFINITE, __NV_E4M3);
      words[w] = low | high << 16;
    }
    *reinterpret_cast<uint2*>(to + first + i * step) = make_uint2(words[0], words[1]);
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = largest / kLargestCode;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ScaleProductKernel(T* y, int64_t y_stride, int64_t rows, int64_t cols, float factor,
                       const float* row_scales, const float* column_scales, const float* bias) {
  AllowSuccessors();
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (col >= cols) return;
  const float scale = column_scales[col] * factor;
  const float added = bias == nullptr ? 0.0F : bias[col];
  WaitForPredecessors();
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* at = y + row * y_stride + col;
    *at = RoundTo<T>(fmaf(ToFloat(*at) * row_scales[row], scale, added));
  }
}

// 16 codes a thread.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    DequantizeFp8Kernel(const Fp8View weight, int64_t first_output, int64_t num_outputs, T* to) {
  AllowSuccessors();
  WaitForPredecessors();
  const int64_t row_chunks = weight.in_features / 16;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < num_outputs * row_chunks;
       i += step) {
    const int64_t row = i / row_chunks;
    const int64_t k = (i - row * row_chunks) * 16;
    const int64_t output = first_output + row;
    const uint4 codes = *reinterpret_cast<const uint4*>(weight.codes + output * weight.in_features + k);
    const float scale = weight.scales[output * weight.num_groups() + k / weight.group_size];
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float values[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        values[j] = scale * ValueOfE4M3(static_cast<uint8_t>(words[half * 2 + j / 4] >> (j % 4 * 8)));
      }
      Run<T, 8> run;
      run.Set(values);
      run.Store(to + row * weight.in_features + k + half * 8);
    }
  }
}

// A block for each row.
__global__ void __launch_bounds__(kThreads) GatherFp8Kernel(const Fp8View weight, const int32_t* ids,
                                                            int32_t first_id, float* to, int64_t to_stride) {
  AllowSuccessors();
  WaitForPredecessors();
  const int64_t output = int64_t{ids[blockIdx.x]} - first_id;
  const bool is_there = output >= 0 && output < weight.out_features;
  float* row = to + blockIdx.x * to_stride;
  for (int64_t k = threadIdx.x; k < weight.in_features; k += kThreads) {
    row[k] = is_there ? weight.scales[output * weight.num_groups() + k / weight.group_size] *
                            ValueOfE4M3(weight.codes[output * weight.in_features + k])
                      : 0.0F;
  }
}

template <typename T, int kRuns>
void LaunchRuns(CudaStream& stream, const MatrixView& x, uint8_t* codes, float* scales) {
  const unsigned threads = CeilDivide(x.cols, int64_t{32} * kWidth * kRuns) * 32;
  LaunchRowKernel<QuantizeToFp8Kernel<T, kRuns>>("quantize to fp8", static_cast<unsigned>(x.rows), threads,
                                                 stream, static_cast<const T*>(x.data), x.row_stride,
                                                 static_cast<int>(x.cols), codes, scales);
}

// function(ElementType<T>{}) for 16-bit types.
template <typename Function>
void WithHalfType(DType dtype, Function&& function) {
  TANDEM_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "fp8 beside {}", DTypeName(dtype));
  if (dtype == DType::kBF16) return function(ElementType<Bf16>{});
  function(ElementType<Fp16>{});
}

}  // namespace

void LaunchQuantizeToFp8(CudaStream& stream, const MatrixView& x, uint8_t* codes, float* scales) {
  TANDEM_CHECK(RowsAligned16(x) && x.cols % 16 == 0 && x.cols <= kMaxFp8RowWidth,
               "quantize to fp8: x {} [{}, {}] stride {}", DTypeName(x.dtype), x.rows, x.cols, x.row_stride);
  if (x.rows == 0) return;
  WithHalfType(x.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    constexpr int64_t kRunThreads = 512;
    if (x.cols <= kRunThreads * kWidth) return LaunchRuns<T, 1>(stream, x, codes, scales);
    if (x.cols <= kRunThreads * kWidth * 2) return LaunchRuns<T, 2>(stream, x, codes, scales);
    if (x.cols <= kRunThreads * kWidth * 4) return LaunchRuns<T, 4>(stream, x, codes, scales);
    LaunchRuns<T, 8>(stream, x, codes, scales);
  });
}

void LaunchScaleProduct(CudaStream& stream, const MatrixView& y, float factor, const float* row_scales,
                        const float* column_scales, const float* bias) {
  if (y.rows == 0) return;
  const dim3 grid(CeilDivide(y.cols, kThreads), static_cast<unsigned>(std::min<int64_t>(y.rows, 1024)));
  WithElementType(y.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    LaunchRowKernel<ScaleProductKernel<T>>("linear: scales", grid, kThreads, stream, static_cast<T*>(y.data),
                                           y.row_stride, y.rows, y.cols, factor, row_scales, column_scales,
                                           bias);
  });
}

void LaunchDequantizeFp8(CudaStream& stream, const Fp8View& weight, int64_t first_output,
                         const MatrixView& to) {
  TANDEM_CHECK(first_output + to.rows <= weight.out_features && to.cols == weight.in_features &&
                   to.row_stride == to.cols && IsAligned16(to.data),
               "dequantize: outputs [{}, {}) of [{}, {}] into [{}, {}]", first_output, first_output + to.rows,
               weight.out_features, weight.in_features, to.rows, to.cols);
  if (to.rows == 0) return;
  const unsigned grid = std::min(CeilDivide(to.rows * weight.in_features / 16, kThreads),
                                 static_cast<unsigned>(stream.target().num_sms) * 16);
  WithHalfType(to.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    LaunchRowKernel<DequantizeFp8Kernel<T>>("dequantize", grid, kThreads, stream, weight, first_output,
                                            to.rows, static_cast<T*>(to.data));
  });
}

void LaunchGatherFp8(CudaStream& stream, const Fp8View& weight, const int32_t* ids, int32_t first_id,
                     const MatrixView& to) {
  TANDEM_CHECK(ids != nullptr && to.dtype == DType::kF32 && to.cols == weight.in_features,
               "embedding: fp8 [{}, {}], out {} [{}, {}]", weight.out_features, weight.in_features,
               DTypeName(to.dtype), to.rows, to.cols);
  if (to.rows == 0) return;
  LaunchRowKernel<GatherFp8Kernel>("embedding", static_cast<unsigned>(to.rows), kThreads, stream, weight, ids,
                                   first_id, static_cast<float*>(to.data), to.row_stride);
}

}  // namespace tandem
