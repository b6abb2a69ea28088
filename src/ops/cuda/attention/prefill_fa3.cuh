// FlashInfer's paged FA3 kernel with a grid of our own. Only for the prefill_fa3_*.cu units: its headers and
// those of FA2 define the same names.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// The library's headers lean on those before them.
// clang-format off
#include <flashinfer/math.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
// clang-format on

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "ops/cuda/attention/prefill_kernels.h"

namespace tandem {
namespace {

// One item a thread block: blockIdx.x counts the items, the longest first, blockIdx.y the heads. The GPU
// hands blocks out as SMs become free, which balances as well as a list an SM does and needs no count of SMs.
struct ItemScheduler {
  struct Params {
    const int32_t* item_sequence;
    const int32_t* item_tile;
    const int32_t* row_indptr;
    const int32_t* block_indptr;
    const int32_t* context_len;
    cutlass::FastDivmod group_size;
  };

  struct WorkTileInfo {
    int sequence;
    bool valid;

    CUTLASS_DEVICE bool is_valid(const Params&) const { return valid; }
    CUTLASS_DEVICE auto get_block_coord(const Params& params) const {
      const int head = static_cast<int>(blockIdx.y);
      const int row_begin = params.row_indptr[sequence];
      return cute::tuple{params.item_tile[blockIdx.x],   head,
                         params.group_size.divide(head), row_begin,
                         params.block_indptr[sequence],  params.row_indptr[sequence + 1] - row_begin,
                         params.context_len[sequence],   sequence};
    }
  };

  CUTLASS_DEVICE WorkTileInfo get_initial_work(const Params& params) const {
    return {params.item_sequence[blockIdx.x], true};
  }
  CUTLASS_DEVICE void init_consumer() const {}
  CUTLASS_DEVICE void prefetch_next_work(const Params&, WorkTileInfo&) const {}
  CUTLASS_DEVICE void broadcast_next_work(WorkTileInfo&) const {}
  template <bool kIsProducer = false>
  CUTLASS_DEVICE WorkTileInfo get_next_work(const Params&, const WorkTileInfo& work) const {
    return {work.sequence, false};
  }
};

template <typename Element, int kHeadDim, int kTileRows, int kTileKeys>
void LaunchLongPrefill(CudaStream& stream, const PrefillLaunch& launch) {
  using Params = flashinfer::BatchPrefillPagedParams<Element, Element, Element, int32_t>;
  using Traits = flashinfer::AttentionKernelTraits</*USE_TMA_LOAD_KV=*/false, kHeadDim, kHeadDim, kTileRows,
                                                   kTileKeys, /*NUM_STAGES=*/2, Element, Element, Element,
                                                   int32_t, flashinfer::StandardAttention>;
  using Mainloop = flashinfer::SparseCollectiveMainloop<typename Params::AdditionalParams, Traits,
                                                        /*CAUSAL=*/true>;
  using Epilogue = flashinfer::CollectiveEpilogue<Traits>;

  const int64_t head_stride = int64_t{2} * launch.block_size * kHeadDim;
  const int64_t block_stride = head_stride * launch.num_kv_heads;
  const int64_t out_stride = int64_t{launch.num_heads} * kHeadDim;
  const auto kv_layout = flashinfer::get_gmem_layout(0, launch.num_kv_heads, kHeadDim, kHeadDim, head_stride);
  typename Params::AdditionalParams additional = {};
  additional.sm_scale = launch.scale;
  typename Mainloop::Params mainloop = Mainloop::to_underlying_arguments(
      {static_cast<const Element*>(launch.q),
       flashinfer::get_gmem_layout(launch.num_rows, launch.num_heads, kHeadDim, launch.q_row_stride,
                                   kHeadDim),
       static_cast<const Element*>(launch.k), kv_layout, static_cast<const Element*>(launch.v), kv_layout,
       launch.block_table, /*window_left=*/-1, block_stride, block_stride,
       static_cast<uint32_t>(launch.block_size), additional});
  typename Epilogue::Params epilogue = Epilogue::to_underlying_arguments(
      {static_cast<Element*>(launch.out),
       flashinfer::get_gmem_layout(launch.num_rows, launch.num_heads, kHeadDim, out_stride, kHeadDim),
       /*lse_ptr=*/nullptr, flashinfer::get_lse_gmem_layout(launch.num_rows, launch.num_heads)});
  ItemScheduler::Params scheduler = {
      launch.item_sequence, launch.item_tile,   launch.row_indptr,
      launch.block_indptr,  launch.context_len, cutlass::FastDivmod(launch.num_heads / launch.num_kv_heads)};

  const auto kernel =
      flashinfer::PrefillWithKVCacheKernel<Mainloop, Epilogue, Traits,
                                           /*LEFT_SLIDING_WINDOW=*/false, /*CAUSAL=*/true, ItemScheduler>;
  constexpr int kSharedBytes = static_cast<int>(sizeof(typename Traits::SharedStorage));
  static_assert(kSharedBytes <= 227 * 1024);
  TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  void* arguments[] = {&mainloop, &epilogue, &scheduler};
  TANDEM_CUDA_CHECK(
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                       dim3(static_cast<unsigned>(launch.num_items), static_cast<unsigned>(launch.num_heads)),
                       dim3(Traits::NUM_THREADS), arguments, kSharedBytes, stream.handle()),
      "long prefill attention: {} tiles of {} rows, {} heads ({} kv) of {}, {} bytes of shared memory",
      launch.num_items, kTileRows, launch.num_heads, launch.num_kv_heads, kHeadDim, kSharedBytes);
}

}  // namespace
}  // namespace tandem
