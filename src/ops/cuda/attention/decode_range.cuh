// Which part of the line of tiles a warp takes.
#pragma once

#include <cstdint>

#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_softmax.cuh"

namespace tandem {
namespace decode {

// What stands at a place of the line, or the head behind whose tiles it is (then tile is its end_tile or
// more); sequence: at or before its own. The whole warp.
__device__ __forceinline__ Cursor Locate(const AttentionPlanSequence* sequences, int num_decodes,
                                         int sequence, int place, int window, int lane) {
  while (true) {
    const int candidate = min(sequence + 1 + lane, num_decodes);
    const unsigned begun = __ballot_sync(kAllLanes, __ldcg(&sequences[candidate].place_begin) <= place);
    sequence += __popc(begun);
    if (begun != kAllLanes) break;
  }
  Cursor cursor;
  cursor.sequence = sequence;
  cursor.Read(sequences, window);
  const int places = cursor.end_tile - cursor.first_tile + kDecodeHeadPlaces;
  const int in_sequence = place - __ldcg(&sequences[sequence].place_begin);
  cursor.kv_head = in_sequence / places;
  cursor.tile = cursor.first_tile + in_sequence % places;
  return cursor;
}

// A warp's places of the line, and those of its CTA, whose warps divide them in order. The plan came by a
// copy before the first kernel of the iteration started, so it may be read at once.
struct WarpRange {
  const AttentionPlanSequence* sequences;
  int num_decodes;
  int first_sequence;  // of the CTA
  int places_per_cta;
  int cta_begin;
  int cta_end;
  int begin;
  int end;

  __device__ __forceinline__ WarpRange(const DecodeAttentionParams& params, int warp, int num_warps) {
    const int cta = static_cast<int>(blockIdx.x);
    // Past L1: it may have been copied since an earlier kernel read it here.
    const auto* header = reinterpret_cast<const PlanHeader*>(params.plan);
    num_decodes = __ldcg(&header->num_decodes);
    const int num_places = __ldcg(&header->num_places);
    places_per_cta = __ldcg(&header->places_per_cta);
    const PlanOffsets offsets{static_cast<int32_t>(gridDim.x)};
    first_sequence = __ldcg(params.plan + offsets.first_sequences() + cta);
    sequences = reinterpret_cast<const AttentionPlanSequence*>(params.plan + offsets.sequences());
    cta_begin = min(cta * places_per_cta, num_places);
    cta_end = min(cta_begin + places_per_cta, num_places);
    const int places_per_warp = (cta_end - cta_begin + num_warps - 1) / num_warps;
    begin = min(cta_begin + warp * places_per_warp, cta_end);
    end = min(begin + places_per_warp, cta_end);
  }

  // The first tile of a range that is not empty, and the places from it on: none if the range has no tile.
  __device__ __forceinline__ void Begin(const DecodeAttentionParams& params, int lane, Cursor* cursor,
                                        int* left) const {
    *cursor = Locate(sequences, num_decodes, first_sequence, begin, params.window, lane);
    if (cursor->tile < cursor->end_tile) return;
    *left -= cursor->end_tile + kDecodeHeadPlaces - cursor->tile;
    if (*left > 0) cursor->NextHead(sequences, params.window, params.num_kv_heads);
  }
};

}  // namespace decode
}  // namespace tandem
