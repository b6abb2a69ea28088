// The decode kernel. A warp streams its tiles, K and V of each apart, through a ring in shared memory and
// multiplies with the tokens as the rows of the mma: S^T = K Q^T, O^T = V^T P^T, so that 8 query heads fill
// its columns. Within a tile one thing waits for the other (fragments, scores, softmax, outputs), and few
// warps fit beside each other: tiles of 32 tokens have half the waiting of an mma's 16. Warps do not wait for
// each other until all have ended; what a warp has of a (sequence, kv head) that it shares with others is
// merged in the CTA, and across CTAs by whichever ends last.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_launch.cuh"
#include "ops/cuda/attention/decode_merge.cuh"
#include "ops/cuda/attention/decode_mma.cuh"
#include "ops/cuda/attention/decode_range.cuh"
#include "ops/cuda/attention/decode_softmax.cuh"

namespace tandem {
namespace decode {

// State: WarpState, or another with its members, says how K and V are stored and multiplied.
template <typename State>
__global__ void __launch_bounds__(32 * DecodeMaxWarps(State::kHeadDim, State::kHeadTiles, State::kCoded), 1)
    DecodeAttentionKernel(const DecodeAttentionParams params) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  using T = typename State::Element;
  constexpr int kHeadDim = State::kHeadDim;
  constexpr int kStages = DecodeStages(kHeadDim, State::kCoded);
  constexpr int kPartBytes = DecodePartBytes(kHeadDim, State::kCoded);
  constexpr int kRingFloats = kStages * kPartBytes / 4;
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
  auto ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  // Kept in a register, not found again with every tile.
  asm volatile("" : "+r"(ring_address));

  const WarpRange range(params, warp, num_warps);
  const AttentionPlanSequence* sequences = range.sequences;
  if (range.cta_begin == range.cta_end) {
    // Whoever waits for this kernel waits for those before it.
    WaitForPredecessors();
    return;
  }

  int4 slot_metas[2] = {make_int4(0, 0, 0, 0), make_int4(0, 0, 0, 0)};
  Cursor cursor;
  int left = range.end - range.begin;  // places
  if (left > 0) range.Begin(params, lane, &cursor, &left);
  if (left <= 0) {
    WaitForPredecessors();
  } else {
    Cursor ahead = cursor;  // the next tile to be copied
    int left_to_copy = left;
    const auto block_of = [&](const Cursor& at) { return __ldcg(params.plan + at.table + at.tile); };
    int block = block_of(ahead);
    const auto part_at = [&](int stage) { return ring_address + static_cast<uint32_t>(stage * kPartBytes); };
    const auto next_stage = [](int stage) { return stage + 1 == kStages ? 0 : stage + 1; };
    // Parts are copied in the order in which they are used: K of a tile, V of it, K of the next.
    const auto copy_keys = [&](int stage) {
      if (left_to_copy > 0) State::template CopyPart<false>(params, ahead, block, part_at(stage), lane);
      CommitCopies();  // without a part as well: groups are counted
    };
    const auto copy_values = [&](int stage) {
      if (left_to_copy > 0) {
        State::template CopyPart<true>(params, ahead, block, part_at(stage), lane);
        --left_to_copy;
        if (++ahead.tile == ahead.end_tile) {
          left_to_copy -= kDecodeHeadPlaces;
          if (left_to_copy > 0) ahead.NextHead(sequences, params.window, params.num_kv_heads);
        }
        if (left_to_copy > 0) block = block_of(ahead);
      }
      CommitCopies();
    };
    const auto fill = [&](int stage) { stage % 2 == 0 ? copy_keys(stage) : copy_values(stage); };
    // The place before stage is free: there goes the part that is used kStages - 1 after that in stage.
    const auto refill = [&](int stage, bool has_keys) {
      const int before = stage == 0 ? kStages - 1 : stage - 1;
      has_keys == (kStages % 2 == 0) ? copy_values(before) : copy_keys(before);
    };

    // Every tile but a sequence's last is older than this iteration: no kernel that is still running writes
    // it.
    int filled = 0;
    while (filled < kStages - 1 && left_to_copy > 0 && ahead.tile + 1 < ahead.end_tile) fill(filled++);
    WaitForPredecessors();

    State state;
    typename State::Query next_query;
    if constexpr (State::kQueryAhead) State::LoadQuery(params, cursor, lane, &next_query);
    while (filled < kStages - 1) fill(filled++);

    int stage = 0;
    bool is_first = true;
    while (left > 0) {
      const int tiles = min(left, cursor.end_tile - cursor.tile);
      const bool starts = cursor.tile == cursor.first_tile;
      const bool ends = cursor.tile + tiles == cursor.end_tile;
      if constexpr (!State::kQueryAhead) State::LoadQuery(params, cursor, lane, &next_query);
      state.TakeQuery(next_query, lane);
      left -= tiles + (ends ? kDecodeHeadPlaces : 0);
      [[maybe_unused]] Cursor next = cursor;
      if constexpr (State::kQueryAhead) {
        if (left > 0) {
          next.NextHead(sequences, params.window, params.num_kv_heads);
          State::LoadQuery(params, next, lane, &next_query);
        }
      }
      state.Start();
      int first_seen = cursor.first_token - cursor.tile * kTileTokens;
      int end_seen = cursor.context_len - cursor.tile * kTileTokens;
      for (int i = 0; i < tiles; ++i) {
        WaitForCopies<kStages - 2>();
        // This part is there for all lanes, and all have read the one before, whose place is filled now.
        __syncwarp();
        refill(stage, true);
        state.AddKeys(part_at(stage), first_seen, end_seen, params.scale_log2, lane);
        stage = next_stage(stage);
        WaitForCopies<kStages - 2>();
        __syncwarp();
        refill(stage, false);
        state.AddValues(part_at(stage), lane);
        stage = next_stage(stage);
        first_seen -= kTileTokens;
        end_seen -= kTileTokens;
      }
      state.ReduceSums();
      if (starts && ends) {
        state.WriteOutput(cursor.OutputIn<T, kHeadDim>(params), params.group, lane);
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
      if constexpr (State::kQueryAhead) {
        cursor = next;
      } else if (left > 0) {
        cursor.NextHead(sequences, params.window, params.num_kv_heads);
      }
    }
    WaitForCopies<0>();
  }
  if (lane == 0) {
    metas[warp * 2] = slot_metas[0];
    metas[warp * 2 + 1] = slot_metas[1];
  }
  __syncthreads();
  MergeSlots<T, kHeadDim>(params, range.places_per_cta, sequences, metas,
                          reinterpret_cast<int*>(metas + 2 * num_warps), shared, kRingFloats, slots);
#else
  __trap();
#endif
}

template <typename State>
void LaunchState(CudaStream* stream, const DecodeLaunch& launch, const DecodeAttentionParams* params) {
  LaunchDecodeKernel<DecodeAttentionKernel<State>>(stream, launch, params);
}

// kState: WarpState, or what takes its place.
template <template <typename, int, int> typename kState, typename T>
void LaunchType(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                const DecodeAttentionParams* params, int group) {
  const bool wide = group > kDecodeHeadTile;
  if (head_dim == 64) {
    wide ? LaunchState<kState<T, 64, 2>>(stream, launch, params)
         : LaunchState<kState<T, 64, 1>>(stream, launch, params);
  } else if (head_dim == 128) {
    wide ? LaunchState<kState<T, 128, 2>>(stream, launch, params)
         : LaunchState<kState<T, 128, 1>>(stream, launch, params);
  } else {
    LaunchState<kState<T, 256, 1>>(stream, launch, params);
  }
}

}  // namespace decode
}  // namespace tandem
