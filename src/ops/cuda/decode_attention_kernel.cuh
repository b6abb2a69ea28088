// The decode kernel. A warp streams its tiles of 16 tokens through a ring in shared memory and multiplies
// with the tokens as the rows of the mma: S^T = K Q^T, O^T = V^T P^T, so that 8 query heads fill its columns.
// Warps do not wait for each other until all have ended; what a warp has of a (sequence, kv head) that it
// shares with others is merged in the CTA, and across CTAs by whichever ends last.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "device/cuda/kernel_launch.h"
#include "ops/cuda/attention_plan_layout.h"
#include "ops/cuda/decode_attention_kernel.h"
#include "ops/cuda/decode_merge.cuh"
#include "ops/cuda/decode_mma.cuh"
#include "ops/cuda/decode_warp_state.cuh"

namespace tandem {
namespace decode {

constexpr int kBlockTokens = 32;

// A place in the line of tiles.
struct Cursor {
  int sequence;
  int kv_head;
  int tile;  // of the sequence: tokens [16 * tile, 16 * tile + 16)
  // Of the sequence:
  int first_tile;
  int end_tile;
  int first_token;  // that the row sees
  int context_len;
  int row;
  int table;

  __device__ __forceinline__ void Read(const AttentionPlanSequence* sequences, int window) {
    const int4 planned = __ldcg(reinterpret_cast<const int4*>(sequences + sequence));
    row = planned.x;
    context_len = planned.y;
    table = planned.z;
    first_token = FirstVisibleToken(context_len, window);
    first_tile = first_token / kTileTokens;
    end_tile = first_tile + NumDecodeTiles(context_len, window);
  }
  // To the first tile of the next kv head, or of the next sequence, which there must be.
  __device__ __forceinline__ void NextHead(const AttentionPlanSequence* sequences, int window,
                                           int num_kv_heads) {
    if (++kv_head == num_kv_heads) {
      kv_head = 0;
      ++sequence;
      Read(sequences, window);
    }
    tile = first_tile;
  }
  __device__ __forceinline__ void NextTile(const AttentionPlanSequence* sequences, int window,
                                           int num_kv_heads) {
    if (++tile == end_tile) NextHead(sequences, window, num_kv_heads);
  }
};

// The place of tile position of the line; sequence: at or before its own. The whole warp.
__device__ __forceinline__ Cursor Locate(const AttentionPlanSequence* sequences, int num_decodes,
                                         int sequence, int position, int window, int lane) {
  while (true) {
    const int candidate = min(sequence + 1 + lane, num_decodes);
    const unsigned begun = __ballot_sync(kAllLanes, __ldcg(&sequences[candidate].tile_begin) <= position);
    sequence += __popc(begun);
    if (begun != kAllLanes) break;
  }
  Cursor cursor;
  cursor.sequence = sequence;
  cursor.Read(sequences, window);
  const int tiles = cursor.end_tile - cursor.first_tile;
  const int in_sequence = position - __ldcg(&sequences[sequence].tile_begin);
  cursor.kv_head = in_sequence / tiles;
  cursor.tile = cursor.first_tile + in_sequence % tiles;
  return cursor;
}

// Query heads of a kv head as the right side of the mma: past L1, which may hold the rows of the layer
// before.
template <typename T, int kHeadDim, int kHeadTiles>
__device__ __forceinline__ void LoadQ(const DecodeAttentionParams& params, const Cursor& cursor, int lane,
                                      uint32_t (&q)[kHeadTiles][kHeadDim / 16][2]) {
  const T* row = static_cast<const T*>(params.q) + cursor.row * params.q_stride +
                 static_cast<int64_t>(cursor.kv_head) * params.group * kHeadDim + lane % 4 * 2;
#pragma unroll
  for (int h = 0; h < kHeadTiles; ++h) {
    const int head = h * kDecodeHeadTile + lane / 4;
    const bool valid = head < params.group;
    const T* head_row = row + (valid ? head : 0) * kHeadDim;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned values = __ldcg(reinterpret_cast<const unsigned*>(head_row + k * 16 + i * 8));
        q[h][k][i] = valid ? values : 0;
      }
    }
  }
}

// Starts the copy of the tile at cursor, whose block number is given.
template <typename T, int kHeadDim>
__device__ __forceinline__ void CopyTile(const DecodeAttentionParams& params, const Cursor& cursor, int block,
                                         uint32_t destination, int lane) {
  constexpr int kRowPieces = kHeadDim / 8;  // of 16 bytes
  constexpr int kPieces = kTileTokens * kRowPieces;
  constexpr int64_t kHeadElements = 2 * kBlockTokens * kHeadDim;
  const T* k = static_cast<const T*>(params.kv) +
               (static_cast<int64_t>(block) * params.num_kv_heads + cursor.kv_head) * kHeadElements +
               cursor.tile % (kBlockTokens / kTileTokens) * kTileTokens * kHeadDim + lane * 8;
  const int first = cursor.first_token - cursor.tile * kTileTokens;
  const int end = cursor.context_len - cursor.tile * kTileTokens;
#pragma unroll
  for (int i = 0; i < kPieces / 32; ++i) {
    const int piece = i * 32 + lane;
    const int row = piece / kRowPieces;
    const int place = piece % kRowPieces ^ row % 8;
    const uint32_t to = destination + static_cast<uint32_t>((row * kRowPieces + place) * 16);
    // Past the ends lies what nobody wrote, or a NaN of someone else's.
    const bool valid = row >= first && row < end;
    CopyAsync16(to, k + i * 256, valid);
    CopyAsync16(to + kPieces * 16, k + kBlockTokens * kHeadDim + i * 256, valid);
  }
}

template <typename T, int kHeadDim, int kHeadTiles>
__global__ void __launch_bounds__(256, 1) DecodeAttentionKernel(const DecodeAttentionParams params) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  constexpr int kStages = DecodeStages(kHeadDim);
  constexpr int kTileBytes = DecodeTileBytes(kHeadDim);
  constexpr int kRingFloats = kStages * kTileBytes / 4;
  AllowSuccessors();

  // [ring x warps][slot x warps][kinds of the slots][two flags]. A warp has two slots: for what it begins
  // with, beside the ring, and for what it ends with, in its ring.
  extern __shared__ __align__(128) float shared[];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int num_warps = static_cast<int>(blockDim.x / 32);
  float* ring = shared + warp * kRingFloats;
  float* slots = shared + num_warps * kRingFloats;
  int4* metas = reinterpret_cast<int4*>(slots + num_warps * DecodeSlotFloats(kHeadDim, params.group));
  const auto ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));

  // The plan came by a copy before the first kernel of the iteration started, so it may be read at once.
  const int cta = static_cast<int>(blockIdx.x);
  // Past L1: it may have been copied since an earlier kernel read it here.
  const auto* header = reinterpret_cast<const PlanHeader*>(params.plan);
  const int num_decodes = __ldcg(&header->num_decodes);
  const int num_tiles = __ldcg(&header->num_tiles);
  const int tiles_per_cta = __ldcg(&header->tiles_per_cta);
  const PlanOffsets offsets{static_cast<int32_t>(gridDim.x)};
  const int first_sequence = __ldcg(params.plan + offsets.first_sequences() + cta);
  const auto* sequences = reinterpret_cast<const AttentionPlanSequence*>(params.plan + offsets.sequences());
  const int cta_begin = min(cta * tiles_per_cta, num_tiles);
  const int cta_end = min(cta_begin + tiles_per_cta, num_tiles);
  const int tiles_per_warp = (cta_end - cta_begin + num_warps - 1) / num_warps;
  const int begin = min(cta_begin + warp * tiles_per_warp, cta_end);
  const int end = min(begin + tiles_per_warp, cta_end);
  if (cta_begin == cta_end) {
    // Whoever waits for this kernel waits for those before it.
    WaitForPredecessors();
    return;
  }

  int4 slot_metas[2] = {make_int4(0, 0, 0, 0), make_int4(0, 0, 0, 0)};
  if (begin == end) {
    WaitForPredecessors();
  } else {
    Cursor cursor = Locate(sequences, num_decodes, first_sequence, begin, params.window, lane);
    Cursor ahead = cursor;  // the next tile to be copied
    int left_to_copy = end - begin;
    const auto block_of = [&](const Cursor& at) {
      return __ldcg(params.plan + at.table + at.tile / (kBlockTokens / kTileTokens));
    };
    int block = block_of(ahead);
    const auto copy_next = [&](int stage) {
      if (left_to_copy > 0) {
        CopyTile<T, kHeadDim>(params, ahead, block, ring_address + static_cast<uint32_t>(stage * kTileBytes),
                              lane);
        if (--left_to_copy > 0) {
          ahead.NextTile(sequences, params.window, params.num_kv_heads);
          block = block_of(ahead);
        }
      }
      CommitCopies();  // without a tile as well: groups are counted
    };

    // Every tile but a sequence's last is older than this iteration: no kernel that is still running writes
    // it.
    int filled = 0;
    while (filled < kStages - 1 && left_to_copy > 0 && ahead.tile + 1 < ahead.end_tile) copy_next(filled++);
    WaitForPredecessors();

    WarpState<T, kHeadDim, kHeadTiles> state;
    uint32_t next_q[kHeadTiles][kHeadDim / 16][2];
    LoadQ<T, kHeadDim, kHeadTiles>(params, cursor, lane, next_q);
    while (filled < kStages - 1) copy_next(filled++);

    int left = end - begin;
    int stage = 0;
    bool is_first = true;
    while (left > 0) {
      const int tiles = min(left, cursor.end_tile - cursor.tile);
      const bool starts = cursor.tile == cursor.first_tile;
      const bool ends = cursor.tile + tiles == cursor.end_tile;
#pragma unroll
      for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
        for (int k = 0; k < kHeadDim / 16; ++k) {
          state.q[h][k][0] = next_q[h][k][0];
          state.q[h][k][1] = next_q[h][k][1];
        }
      }
      Cursor next = cursor;
      if (left > tiles) {
        next.NextHead(sequences, params.window, params.num_kv_heads);
        LoadQ<T, kHeadDim, kHeadTiles>(params, next, lane, next_q);
      }
      state.Start();
      int first_seen = cursor.first_token - cursor.tile * kTileTokens;
      int end_seen = cursor.context_len - cursor.tile * kTileTokens;
      for (int i = 0; i < tiles; ++i) {
        WaitCopies<kStages - 2>();
        // This tile is there for all lanes, and all have read the tile before, whose place is filled now.
        __syncwarp();
        copy_next(stage == 0 ? kStages - 1 : stage - 1);
        state.AddTile(ring_address + static_cast<uint32_t>(stage * kTileBytes), first_seen, end_seen,
                      params.scale_log2, lane);
        first_seen -= kTileTokens;
        end_seen -= kTileTokens;
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      left -= tiles;
      state.ReduceSums();
      if (starts && ends) {
        state.WriteOutput(static_cast<T*>(params.out) + cursor.row * params.out_stride +
                              static_cast<int64_t>(cursor.kv_head) * params.group * kHeadDim,
                          params.group, lane);
      } else {
        // Not the first: then the last, and nothing is read from the ring any more.
        __syncwarp();
        float* data = is_first ? slots + warp * DecodeSlotFloats(kHeadDim, params.group) : ring;
        state.WriteSlot(Slot{data, params.group}, lane);
        const int flags = kSlotUsed | (starts ? kSlotStarts : 0) | (ends ? kSlotEnds : 0);
        const int4 meta = make_int4(cursor.sequence, cursor.kv_head, flags, cursor.row);
        if (is_first) {
          slot_metas[0] = meta;
        } else {
          slot_metas[1] = meta;
        }
      }
      is_first = false;
      cursor = next;
    }
    WaitCopies<0>();
  }
  if (lane == 0) {
    metas[warp * 2] = slot_metas[0];
    metas[warp * 2 + 1] = slot_metas[1];
  }
  __syncthreads();
  MergeSlots<T, kHeadDim>(params, tiles_per_cta, sequences, metas,
                          reinterpret_cast<int*>(metas + 2 * num_warps), shared, kRingFloats, slots);
#else
  __trap();
#endif
}

template <typename T, int kHeadDim, int kHeadTiles>
void LaunchShape(CudaStream* stream, const DecodeLaunch& launch, const DecodeAttentionParams* params) {
  const auto kernel = DecodeAttentionKernel<T, kHeadDim, kHeadTiles>;
  if (params == nullptr) {
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(launch.shared_bytes)),
                      "decode attention: {} bytes of shared memory", launch.shared_bytes);
    return;
  }
  LaunchKernel("decode attention", kernel, dim3(static_cast<unsigned>(launch.num_ctas)),
               dim3(static_cast<unsigned>(launch.num_warps * 32)), launch.shared_bytes, *stream, *params);
}

template <typename T>
void LaunchType(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                const DecodeAttentionParams* params, int group) {
  const bool wide = group > kDecodeHeadTile;
  if (head_dim == 64) {
    wide ? LaunchShape<T, 64, 2>(stream, launch, params) : LaunchShape<T, 64, 1>(stream, launch, params);
  } else if (head_dim == 128) {
    wide ? LaunchShape<T, 128, 2>(stream, launch, params) : LaunchShape<T, 128, 1>(stream, launch, params);
  } else {
    LaunchShape<T, 256, 1>(stream, launch, params);
  }
}

}  // namespace decode
}  // namespace tandem
