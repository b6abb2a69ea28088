#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/kv_codes/recode_blocks.h"
#include "ops/cuda/kv_codes/warp_head.cuh"
#include "ops/cuda/row_access.h"

namespace tandem {
namespace {

// Small CTAs, so that they find room beside those of the model.
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaxTileTokens = 32;
constexpr int kMaxTileBytes =
    kMaxTileTokens * kMaxCodedHeadDim + kMaxTileTokens * static_cast<int>(sizeof(bf16_t));

// A head of a block on either side, counted in heads.
struct HeadPlaces {
  int64_t listed;
  int64_t staged;

  __device__ __forceinline__ HeadPlaces(const KvRecoding& recoding, int block, int head) {
    const int num_kv_heads = recoding.heads.num_kv_heads;
    const int32_t number =
        recoding.device_blocks != nullptr ? __ldcg(recoding.device_blocks + block) : recoding.blocks[block];
    listed = static_cast<int64_t>(number) * num_kv_heads + head;
    staged = StagedHead(recoding.num_blocks, num_kv_heads, recoding.heads_per_part, block, head);
  }
};

// By all threads, 16 bytes each. From memory past L1, which may hold what lay there before.
__device__ __forceinline__ void CopyFromMemory(void* to, const void* from, int bytes) {
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += kThreads) {
    static_cast<uint4*>(to)[i] = __ldcg(static_cast<const uint4*>(from) + i);
  }
}
__device__ __forceinline__ void CopyFromShared(void* to, const void* from, int bytes) {
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += kThreads) {
    static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
  }
}

// A CTA takes a tile of K or of V of one head at a time, whose codes lie in shared memory meanwhile; its
// warps take tokens.
template <typename T, int kRuns, bool kToCodes>
__global__ void __launch_bounds__(kThreads) RecodeKernel(const __grid_constant__ KvRecoding recoding) {
  __shared__ __align__(16) uint8_t tile[kMaxTileBytes];
  AllowSuccessors();
  WaitForPredecessors();
  const CodedHeads& heads = recoding.heads;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int num_tiles = heads.num_tiles();
  const int64_t num_items = static_cast<int64_t>(recoding.num_blocks) * heads.num_kv_heads * 2 * num_tiles;
  for (int64_t item = blockIdx.x; item < num_items; item += gridDim.x) {
    int64_t index = item;
    const int tile_number = static_cast<int>(index % num_tiles);
    index /= num_tiles;
    const bool is_value = index % 2 != 0;
    index /= 2;
    const HeadPlaces places(recoding, static_cast<int>(index / heads.num_kv_heads),
                            static_cast<int>(index % heads.num_kv_heads));
    uint8_t* codes = static_cast<uint8_t*>(recoding.codes) +
                     (recoding.codes_are_listed ? places.listed : places.staged) * heads.head_bytes +
                     heads.TileBegin(tile_number, is_value);
    T* rows = static_cast<T*>(recoding.numbers) +
              ((recoding.codes_are_listed ? places.staged : places.listed) * 2 + (is_value ? 1 : 0)) *
                  heads.block_size * heads.head_dim +
              static_cast<int64_t>(tile_number) * heads.tile_tokens * heads.head_dim;
    WarpHead<kRuns> head;
    if constexpr (!kToCodes) {
      CopyFromMemory(tile, codes, heads.tile_bytes);
      __syncthreads();
    }
    for (int token = warp; token < heads.tile_tokens; token += kWarps) {
      T* row = rows + token * heads.head_dim;
      if constexpr (kToCodes) {
        head.Load(row, heads.head_dim, lane);
        if (!is_value) head.Rotate(heads, lane);
        head.WriteCodes(heads, is_value, tile, token, lane);
      } else {
        head.ReadCodes(heads, is_value, tile, token, lane);
        if (!is_value) head.Rotate(heads, lane);
        head.Store(row, heads.head_dim, lane);
      }
    }
    __syncthreads();
    if constexpr (kToCodes) {
      CopyFromShared(codes, tile, heads.tile_bytes);
      __syncthreads();
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    GatherCodesKernel(const __grid_constant__ KvRecoding recoding, uint8_t* staging, bool to_staging) {
  AllowSuccessors();
  WaitForPredecessors();
  const int head_bytes = recoding.heads.head_bytes;
  const int num_kv_heads = recoding.heads.num_kv_heads;
  const int num_items = recoding.num_blocks * num_kv_heads;
  for (int item = static_cast<int>(blockIdx.x); item < num_items; item += static_cast<int>(gridDim.x)) {
    const HeadPlaces places(recoding, item / num_kv_heads, item % num_kv_heads);
    uint8_t* listed = static_cast<uint8_t*>(recoding.codes) + places.listed * head_bytes;
    uint8_t* staged = staging + places.staged * head_bytes;
    CopyFromMemory(to_staging ? staged : listed, to_staging ? listed : staged, head_bytes);
  }
}

void CheckRecoding(const KvRecoding& recoding) {
  const CodedHeads& heads = recoding.heads;
  TANDEM_CHECK(recoding.num_blocks > 0 && recoding.heads_per_part > 0 && heads.num_kv_heads > 0 &&
                   (recoding.device_blocks != nullptr || recoding.num_blocks <= KvRecoding::kMaxBlocks),
               "recoding: {} blocks, {} of {} heads a part", recoding.num_blocks, recoding.heads_per_part,
               heads.num_kv_heads);
  TANDEM_CHECK(heads.tile_bytes <= kMaxTileBytes && heads.tile_bytes % 16 == 0 && heads.head_dim % 16 == 0,
               "recoding: tiles of {} tokens of {}", heads.tile_tokens, heads.head_dim);
  TANDEM_CHECK(reinterpret_cast<uintptr_t>(recoding.codes) % 16 == 0 &&
                   reinterpret_cast<uintptr_t>(recoding.numbers) % 16 == 0,
               "recoding: codes at {}, numbers at {}", recoding.codes, recoding.numbers);
}

template <bool kToCodes>
void Launch(CudaStream& stream, const KvRecoding& recoding, int max_ctas) {
  CheckRecoding(recoding);
  const int64_t num_items = static_cast<int64_t>(recoding.num_blocks) * recoding.heads.num_kv_heads * 2 *
                            recoding.heads.num_tiles();
  const auto grid = static_cast<unsigned>(std::min<int64_t>(num_items, max_ctas));
  WithElementType(recoding.dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    WithRuns(recoding.heads.head_dim, [&](auto runs) {
      LaunchKernel("recode_kv", RecodeKernel<T, decltype(runs)::kRuns, kToCodes>, dim3(grid), dim3(kThreads),
                   0, stream, recoding);
    });
  });
}

}  // namespace

void LaunchNumbersToCodes(CudaStream& stream, const KvRecoding& recoding, int max_ctas) {
  Launch<true>(stream, recoding, max_ctas);
}

void LaunchCodesToNumbers(CudaStream& stream, const KvRecoding& recoding, int max_ctas) {
  Launch<false>(stream, recoding, max_ctas);
}

void LaunchGatherCodes(CudaStream& stream, const KvRecoding& recoding, void* staging, bool to_staging,
                       int max_ctas) {
  CheckRecoding(recoding);
  const int num_items = recoding.num_blocks * recoding.heads.num_kv_heads;
  LaunchKernel("gather_kv", GatherCodesKernel, dim3(static_cast<unsigned>(std::min(num_items, max_ctas))),
               dim3(kThreads), 0, stream, recoding, static_cast<uint8_t*>(staging), to_staging);
}

}  // namespace tandem
