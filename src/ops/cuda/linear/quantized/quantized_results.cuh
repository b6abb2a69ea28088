// What the blocks of quantized_kernel.cuh and quantized_direct.cuh do with their sums, and how they, and
// those of fp8/fp8_kernel.cuh, are launched.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/quantized/quantized_slice.cuh"
#include "ops/cuda/linear/tensor_core.cuh"

namespace tandem {

// Sums of a block's part of the slices become those of all: true for the block that arrives last, whose sums
// they then are. sums: shared memory, [rows][pitch].
template <int kRows, int kPitch>
__device__ __forceinline__ bool AddParts(float* sums, const QuantizedProduct& product, int unit, int split,
                                         int rows, int thread) {
  constexpr int kRowVectors = kBlockOutputs / 4;
  constexpr int kPartFloats = kRows * kBlockOutputs;
  auto* parts = reinterpret_cast<float4*>(product.workspace.partials +
                                          static_cast<int64_t>(unit) * product.num_splits * kPartFloats);
  float4* own = parts + static_cast<int64_t>(split) * (kPartFloats / 4);
  for (int i = thread; i < rows * kRowVectors; i += kQuantizedThreads) {
    own[i] = *reinterpret_cast<const float4*>(sums + i / kRowVectors * kPitch + i % kRowVectors * 4);
  }
  __threadfence();
  __shared__ bool is_last;
  __syncthreads();
  if (thread == 0) {
    is_last =
        atomicAdd(product.workspace.counters + unit, 1U) == static_cast<uint32_t>(product.num_splits - 1);
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  for (int i = thread; i < rows * kRowVectors; i += kQuantizedThreads) {
    float4 total = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll 8
    for (int s = 0; s < product.num_splits; ++s) {
      const float4 part = __ldcg(parts + static_cast<int64_t>(s) * (kPartFloats / 4) + i);
      total.x += part.x;
      total.y += part.y;
      total.z += part.z;
      total.w += part.w;
    }
    *reinterpret_cast<float4*>(sums + i / kRowVectors * kPitch + i % kRowVectors * 4) = total;
  }
  if (thread == 0) product.workspace.counters[unit] = 0;
  __syncthreads();
  return true;
}

// y of what the block's warps have: sums of its part of the slices. block_sums: shared memory, which nobody
// needs any more once all threads are here. All threads of the block; blockIdx as of LaunchBlocks.
template <typename T, typename Tiling>
__device__ __forceinline__ void StoreBlock(
    const QuantizedProduct& product, const float (&sums)[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4],
    float* block_sums) {
  constexpr int kPitch = kBlockSumsPitch;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int output_warp = warp % Tiling::kOutputWarps;
  const int row_warp = warp / Tiling::kOutputWarps;
  const int first_row = static_cast<int>(blockIdx.x) * Tiling::kRows;
  const int rows = min(Tiling::kRows, product.rows - first_row);
  const int first_output = static_cast<int>(blockIdx.y) * kBlockOutputs;
  const int split = static_cast<int>(blockIdx.z);
  // [rows][128 outputs] in shared memory, from where neighbours are written together.
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Tiling::kWarpRecords; ++i) {
#pragma unroll
    for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
      float* to = block_sums + ((row_warp * Tiling::kWarpRowTiles + tile) * 8 + lane % 4 * 2) * kPitch +
                  (output_warp * Tiling::kWarpRecords + i) * kRecordOutputs + lane / 4;
      to[0] = sums[i][tile][0];
      to[kPitch] = sums[i][tile][1];
      to[8] = sums[i][tile][2];
      to[kPitch + 8] = sums[i][tile][3];
    }
  }
  __syncthreads();
  if (product.num_splits > 1) {
    const int unit = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
    if (!AddParts<Tiling::kRows, kPitch>(block_sums, product, unit, split, rows, thread)) return;
  }
  const int column = thread % kBlockOutputs;
  const int output = first_output + column;
  if (output >= product.out_features) return;
  const float factor = product.factors[output];
  const float bias = product.bias == nullptr ? 0.0F : product.bias[output];
  for (int row = thread / kBlockOutputs; row < rows; row += kQuantizedThreads / kBlockOutputs) {
    const float value = fmaf(block_sums[row * kPitch + column], factor, bias);
    const int64_t at = (first_row + row) * product.y_stride + output;
    StoreResult<T>(product.y, product.y_is_f32, at, value);
  }
}

// Grid: blocks of rows, then of outputs, then parts of the slices. Product: QuantizedProduct, or more.
// blocks_per_sm: of this kernel.
template <typename Tiling, typename Product>
void LaunchBlocks(const char* name, CudaStream& stream, Product product, void (*kernel)(Product),
                  int shared_bytes, PerGpu<int>* blocks_per_sm) {
  const int blocks = blocks_per_sm->Of(stream, [kernel, shared_bytes] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    // Room for blocks of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    int fitting = 0;
    TANDEM_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fitting, kernel, kQuantizedThreads, shared_bytes));
    return std::max(fitting, 1);
  });
  const int row_blocks = (product.rows + Tiling::kRows - 1) / Tiling::kRows;
  const int output_blocks = (product.out_features + kBlockOutputs - 1) / kBlockOutputs;
  const int64_t units = static_cast<int64_t>(row_blocks) * output_blocks;
  const int splits = NumParts({.units = units,
                               .at_once = static_cast<int64_t>(stream.target().num_sms) * blocks,
                               .num_slices = product.num_slices,
                               .rows = Tiling::kRows,
                               .unit_bytes = int64_t{Tiling::kRows} * kBlockOutputs * 4});
  product.num_splits = splits;
  TANDEM_CHECK(splits == 1 || product.workspace.partials != nullptr, "{}: no workspace", name);
  LaunchKernel(name, kernel,
               dim3(static_cast<unsigned>(row_blocks), static_cast<unsigned>(output_blocks),
                    static_cast<unsigned>(splits)),
               dim3(kQuantizedThreads), static_cast<size_t>(shared_bytes), stream, product);
}

}  // namespace tandem
