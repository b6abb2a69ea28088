// The decode kernel of compute capability 7.5: the line, its ranges and the merging of the kernel for 8.0
// (decode_attention_kernel.cuh), with tiles in registers. While a warp multiplies K of a tile its V is on the
// way, and while it multiplies V the next tile's K is.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "base/check.h"
#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_launch.cuh"
#include "ops/cuda/attention/decode_merge.cuh"
#include "ops/cuda/attention/decode_range.cuh"
#include "ops/cuda/attention/decode_softmax.cuh"

namespace tandem {
namespace decode {

// Adds what a state has to a slot of the same (sequence, kv head), whose tokens are later ones. The whole
// warp.
template <typename State>
__device__ __forceinline__ void AddToSlot(State* state, const Slot& slot, int lane) {
#pragma unroll
  for (int h = 0; h < State::kHeadTiles; ++h) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = h * kDecodeHeadTile + lane % 4 * 2 + i;
      if (head >= slot.group) continue;
      const float slot_max = slot.template Max<State::kHeadDim>()[head];
      const float new_max = fmaxf(state->max[h][i], slot_max);
      const float own_weight = Exp2(state->max[h][i] - new_max);
      const float slot_weight = Exp2(slot_max - new_max);
      state->max[h][i] = new_max;
      state->sum[h][i] =
          own_weight * state->sum[h][i] + slot_weight * slot.template Sum<State::kHeadDim>()[head];
      const float* row = slot.template Row<State::kHeadDim>(head);
#pragma unroll
      for (int m = 0; m < State::kSteps; ++m) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& own = state->o[h][m][i + 2 * e];
          own = own_weight * own + slot_weight * row[State::OutputElement(m, e, lane)];
        }
      }
    }
  }
  __syncwarp();  // all lanes have read maxima and sums
  state->WriteSlot(slot, lane);
}

// State: DirectWarpState, or another with its members.
template <typename State>
__global__ void __launch_bounds__(32 * DirectDecodeMaxWarps(State::kHeadDim, State::kHeadTiles), 1)
    DirectDecodeAttentionKernel(const DecodeAttentionParams params) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
  constexpr int kHeadDim = State::kHeadDim;
  constexpr int kTokens = State::kTokens;
  AllowSuccessors();
  // [slot x (warps + 1)][kinds of the slots][two flags]
  extern __shared__ __align__(128) float shared[];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int num_warps = static_cast<int>(blockDim.x / 32);
  const int slot_floats = DecodeSlotFloats(kHeadDim, params.group);
  float* last_slot = shared + num_warps * slot_floats;
  int4* metas = reinterpret_cast<int4*>(last_slot + slot_floats);
  const auto slot_of = [&](int index) { return Slot{shared + index * slot_floats, params.group}; };

  WaitForPredecessors();
  const WarpRange range(params, warp, num_warps);
  if (range.cta_begin == range.cta_end) return;

  const AttentionPlanSequence* sequences = range.sequences;
  int4 first_meta = make_int4(0, 0, 0, 0);
  int4 last_meta = first_meta;
  State state;
  Cursor cursor;
  int left = range.end - range.begin;  // places
  if (left > 0) range.Begin(params, lane, &cursor, &left);
  if (left > 0) {
    typename State::Part keys;
    typename State::Part values;
    Cursor ahead = cursor;  // what is loaded next, from its token begin_ahead on
    int begin_ahead = 0;
    int left_to_load = left;
    const auto block_of = [&](const Cursor& at) { return __ldcg(params.plan + at.table + at.tile); };
    int block = block_of(ahead);
    const auto load_keys = [&] {
      if (left_to_load > 0) State::template Load<false>(params, ahead, block, begin_ahead, lane, &keys);
    };
    const auto load_values = [&] {
      if (left_to_load <= 0) return;
      State::template Load<true>(params, ahead, block, begin_ahead, lane, &values);
      if (begin_ahead + kTokens < kTileTokens) {
        begin_ahead += kTokens;
        return;
      }
      begin_ahead = 0;
      --left_to_load;
      if (++ahead.tile == ahead.end_tile) {
        left_to_load -= kDecodeHeadPlaces;
        if (left_to_load > 0) ahead.NextHead(sequences, params.window, params.num_kv_heads);
      }
      if (left_to_load > 0) block = block_of(ahead);
    };
    const auto take_query = [&] {
      typename State::Query query;
      State::LoadQuery(params, cursor, lane, &query);
      state.TakeQuery(query, lane);
    };
    load_keys();
    load_values();
    take_query();

    bool is_first = true;
    while (left > 0) {
      const int tiles = min(left, cursor.end_tile - cursor.tile);
      const bool starts = cursor.tile == cursor.first_tile;
      const bool ends = cursor.tile + tiles == cursor.end_tile;
      left -= tiles + (ends ? kDecodeHeadPlaces : 0);
      state.Start();
      int first_seen = cursor.first_token - cursor.tile * kTileTokens;
      int end_seen = cursor.context_len - cursor.tile * kTileTokens;
      for (int i = 0; i < tiles * (kTileTokens / kTokens); ++i) {
        // Of a tile there is a token that is seen, not of every half.
        const bool sees = kTokens == kTileTokens || (first_seen < kTokens && end_seen > 0);
        if (sees) state.AddKeys(keys, first_seen, end_seen, params.scale_log2, lane);
        load_keys();
        if (sees) state.AddValues(values, lane);
        load_values();
        first_seen -= kTokens;
        end_seen -= kTokens;
      }
      state.ReduceSums();
      const int4 meta =
          make_int4(cursor.sequence, cursor.kv_head,
                    kSlotUsed | (starts ? kSlotStarts : 0) | (ends ? kSlotEnds : 0), cursor.row);
      if (starts && ends) {
        state.WriteOutput(cursor.OutputIn<__half, kHeadDim>(params), params.group, lane);
      } else if (is_first) {
        state.WriteSlot(slot_of(warp), lane);
        first_meta = meta;
      } else {
        last_meta = meta;  // and nothing follows
      }
      is_first = false;
      if (left > 0) {
        cursor.NextHead(sequences, params.window, params.num_kv_heads);
        take_query();
      }
    }
  }
  if (lane == 0) {
    metas[warp * 2] = first_meta;
    metas[warp * 2 + 1] = make_int4(0, 0, 0, 0);
  }
  __syncthreads();
  // What a warp ends with the next one of the CTA has gone on with, as the first it did.
  if ((last_meta.z & kSlotUsed) != 0) {
    const bool goes_on = range.end < range.cta_end;
    if (goes_on) {
      AddToSlot(&state, slot_of(warp + 1), lane);
      if (lane == 0) metas[warp * 2 + 2].z |= kSlotStarts;
    } else {
      state.WriteSlot(slot_of(num_warps), lane);
      if (lane == 0) metas[warp * 2 + 1] = last_meta;
    }
  }
  __syncthreads();
  MergeSlots<__half, kHeadDim>(params, range.places_per_cta, sequences, metas,
                               reinterpret_cast<int*>(metas + 2 * num_warps), last_slot, 0, shared);
#else
  __trap();
#endif
}

template <typename State>
void LaunchDirectState(CudaStream* stream, const DecodeLaunch& launch, const DecodeAttentionParams* params) {
  LaunchDecodeKernel<DirectDecodeAttentionKernel<State>>(stream, launch, params);
}

// kState: of head_dim and tiles of query heads.
template <template <int, int> typename kState>
void LaunchDirectType(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                      const DecodeAttentionParams* params, int group) {
  TANDEM_CHECK(head_dim == 64 || head_dim == 128, "decode attention: heads of {}", head_dim);
  const bool wide = group > kDecodeHeadTile;
  if (head_dim == 64) {
    wide ? LaunchDirectState<kState<64, 2>>(stream, launch, params)
         : LaunchDirectState<kState<64, 1>>(stream, launch, params);
  } else {
    wide ? LaunchDirectState<kState<128, 2>>(stream, launch, params)
         : LaunchDirectState<kState<128, 1>>(stream, launch, params);
  }
}

}  // namespace decode
}  // namespace tandem
