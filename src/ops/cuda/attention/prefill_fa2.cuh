// FlashInfer's paged FA2 kernels, launched with a plan of our own. Only for the prefill_h*_*.cu units.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/attention/prefill_kernels.h"

namespace tandem {
namespace {

// kKvTiles: 16 tokens each, a warp of the key dimension; what fits twice into an SM of 164 KiB and once into
// a block of 99 KiB.
template <typename Element, uint32_t kHeadDim, uint32_t kTileRows, uint32_t kKvTiles>
void LaunchPrefillTile(CudaStream& stream, const PrefillLaunch& launch) {
  using Params = flashinfer::BatchPrefillPagedParams<Element, Element, Element, int32_t>;
  // Window on, cap and bias off: without a window its comparison costs only in tiles that are masked anyway.
  using Variant = flashinfer::DefaultAttention<false, true, false, false>;
  constexpr uint32_t kWarpsQ = flashinfer::get_num_warps_q(kTileRows);
  constexpr uint32_t kWarpsKv = flashinfer::get_num_warps_kv(kTileRows);
  using Traits =
      flashinfer::KernelTraits<flashinfer::MaskMode::kCausal, kTileRows, flashinfer::get_num_mma_q(kTileRows),
                               kKvTiles, kHeadDim / 16, kHeadDim / 16, kWarpsQ, kWarpsKv,
                               flashinfer::PosEncodingMode::kNone, Element, Element, Element, float, int32_t,
                               Variant, flashinfer::kPrefillLauncherRepacksFp4>;
  static_assert(!Traits::IsInvalid());

  Params params;
  // The library's parameters are not const; its kernel only reads these.
  const auto element = [](const void* data) { return static_cast<Element*>(const_cast<void*>(data)); };
  const auto ints = [](const int32_t* data) { return const_cast<int32_t*>(data); };
  const int64_t head_stride = int64_t{2} * launch.block_size * kHeadDim;
  const int64_t strides[3] = {head_stride * launch.num_kv_heads, head_stride, kHeadDim};
  params.q = element(launch.q);
  params.paged_kv = flashinfer::paged_kv_t<Element, int32_t>(
      static_cast<uint32_t>(launch.num_kv_heads), static_cast<uint32_t>(launch.block_size), kHeadDim,
      static_cast<uint32_t>(launch.num_sequences), flashinfer::QKVLayout::kHND, element(launch.k),
      element(launch.v), strides, ints(launch.block_table), ints(launch.block_indptr),
      ints(launch.last_block_tokens));
  params.q_indptr = ints(launch.row_indptr);
  params.o = static_cast<Element*>(launch.out);
  params.lse = launch.split ? launch.log_sum_exp : nullptr;
  params.group_size = flashinfer::uint_fastdiv(static_cast<uint32_t>(launch.num_heads / launch.num_kv_heads));
  params.num_qo_heads = static_cast<uint32_t>(launch.num_heads);
  params.q_stride_n = static_cast<int32_t>(launch.q_row_stride);
  params.q_stride_h = kHeadDim;
  params.window_left = launch.window_left;
  params.sm_scale = launch.scale;
  params.request_indices = ints(launch.item_sequence);
  params.qo_tile_indices = ints(launch.item_tile);
  params.kv_tile_indices = ints(launch.item_chunk);
  params.o_indptr = ints(launch.out_indptr);
  params.kv_chunk_size_ptr = ints(launch.chunk_tokens);
  params.padded_batch_size = static_cast<uint32_t>(launch.num_items);
  params.partition_kv = launch.split;

  const auto kernel = flashinfer::BatchPrefillWithPagedKVCacheKernel<true, Traits, Params>;
  constexpr int kSharedBytes = static_cast<int>(sizeof(typename Traits::SharedStoragePaged));
  static_assert(kSharedBytes <= 99 * 1024);
  TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  void* arguments[] = {&params};
  TANDEM_CUDA_CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                                     dim3(static_cast<unsigned>(launch.num_items), 1,
                                          static_cast<unsigned>(launch.num_kv_heads)),
                                     dim3(32, kWarpsQ, kWarpsKv), arguments, kSharedBytes, stream.handle()),
                    "prefill attention: {} tiles of {} rows, {} sequences, {} heads ({} kv) of {}, {} bytes "
                    "of shared memory",
                    launch.num_items, kTileRows, launch.num_sequences, launch.num_heads, launch.num_kv_heads,
                    kHeadDim, kSharedBytes);
}

template <typename Element, uint32_t kHeadDim>
void LaunchPrefill(CudaStream& stream, const PrefillLaunch& launch) {
  if (launch.tile_rows == 16) {
    LaunchPrefillTile<Element, kHeadDim, 16, 256 / kHeadDim>(stream, launch);
  } else if (launch.tile_rows == 64) {
    LaunchPrefillTile<Element, kHeadDim, 64, kHeadDim == 256 ? 2 : 4>(stream, launch);
  } else {
    if constexpr (kHeadDim <= 128) {
      TANDEM_CHECK(launch.tile_rows == 128, "{} rows a tile", launch.tile_rows);
      LaunchPrefillTile<Element, kHeadDim, 128, 4>(stream, launch);
    } else {
      TANDEM_CHECK(false, "{} rows a tile with heads of {}", launch.tile_rows, kHeadDim);
    }
  }
}

}  // namespace
}  // namespace tandem
