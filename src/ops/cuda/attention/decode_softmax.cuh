// One warp's online softmax over tiles of 32 tokens, or parts of them, whatever K and V are stored as.
#pragma once

#include <cstdint>

#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_merge.cuh"
#include "ops/cuda/attention/decode_mma.cuh"

namespace tandem {
namespace decode {

constexpr int kTileTokens = kDecodeTileTokens;

// A tile in the line.
struct Cursor {
  int sequence;
  int kv_head;
  int tile;  // of the sequence, which is the number of its block too
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

  // Its query heads' outputs, [group][kHeadDim].
  template <typename T, int kHeadDim>
  __device__ __forceinline__ T* OutputIn(const DecodeAttentionParams& params) const {
    return static_cast<T*>(params.out) + row * params.out_stride +
           static_cast<int64_t>(kv_head) * params.group * kHeadDim;
  }
  // How many parts of the cache come before K or V of its head in a block.
  __device__ __forceinline__ int64_t PartsBefore(const DecodeAttentionParams& params, int block,
                                                 bool is_v) const {
    return (static_cast<int64_t>(block) * params.num_kv_heads + kv_head) * 2 + (is_v ? 1 : 0);
  }
};

// load(h, row, valid) for each tile of 8 query heads of the kv head at cursor. row: of head 8 * h + lane / 4;
// if there is none it is not valid, and row is one that may be read.
template <typename T, int kHeadDim, int kHeadTiles, typename Load>
__device__ __forceinline__ void ForQueryRows(const DecodeAttentionParams& params, const Cursor& cursor,
                                             int lane, Load&& load) {
  const T* first_row = static_cast<const T*>(params.q) + cursor.row * params.q_stride +
                       static_cast<int64_t>(cursor.kv_head) * params.group * kHeadDim;
#pragma unroll
  for (int h = 0; h < kHeadTiles; ++h) {
    const int head = h * kDecodeHeadTile + lane / 4;
    const bool valid = head < params.group;
    load(h, first_row + (valid ? head : 0) * kHeadDim, valid);
  }
}

// What a warp knows of the (sequence, kv head) it is at. Lane 4 * g + c holds, of tile h of 8 query heads,
// scores of heads 8 * h + 2 * c and + 1 for kLaneTokens of the tokens that are weighed at once, and outputs
// of the same heads: o[h][m][i] is of head 8 * h + 2 * c + i % 2. Which tokens and which elements these are,
// the states that derive from it say.
template <int kHeadDim, int kHeadTiles, int kLaneTokensValue = kTileTokens / 8>
struct OnlineSoftmax {
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kLaneTokens = kLaneTokensValue;

  float o[kHeadTiles][kSteps][4];
  float max[kHeadTiles][2];
  float sum[kHeadTiles][2];  // of this lane's tokens

  __device__ __forceinline__ void Start() {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int m = 0; m < kSteps; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[h][m][i] = 0.0F;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        max[h][i] = kMinusInfinity;
        sum[h][i] = 0.0F;
      }
    }
  }

  // Scores of tile h of query heads, each the sum of two, become weights s. Those of lane token t are of
  // token token_of(t) of the kLaneTokens * 8 that are weighed at once, and count factor_of(t) times. Tokens
  // outside [first, end) are not seen; there is one that is.
  template <typename FactorOf, typename TokenOf>
  __device__ __forceinline__ void WeighSeen(int h, const float (&scores)[kLaneTokens / 2][2][4], int first,
                                            int end, FactorOf&& factor_of, TokenOf&& token_of,
                                            float (&s)[kLaneTokens][2]) {
#pragma unroll
    for (int t = 0; t < kLaneTokens; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = t % 2 * 2 + i;
        s[t][i] = (scores[t / 2][0][at] + scores[t / 2][1][at]) * factor_of(t);
      }
    }
    const bool sees_all = first <= 0 && end >= kLaneTokens * 8;
    if (!sees_all) {
#pragma unroll
      for (int t = 0; t < kLaneTokens; ++t) {
        const int token = token_of(t);
        if (token < first || token >= end) s[t][0] = s[t][1] = kMinusInfinity;
      }
    }
    Weigh(h, s);
  }

  // Scores of tokens become weights, and outputs and sums are scaled to the new maxima. There is a token that
  // is seen; of those that are not, scores are -infinity.
  __device__ __forceinline__ void Weigh(int h, float (&s)[kLaneTokens][2]) {
    float new_max[2] = {kMinusInfinity, kMinusInfinity};
#pragma unroll
    for (int t = 0; t < kLaneTokens; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) new_max[i] = fmaxf(new_max[i], s[t][i]);
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) {
      new_max[0] = fmaxf(new_max[0], __shfl_xor_sync(kAllLanes, new_max[0], offset));
      new_max[1] = fmaxf(new_max[1], __shfl_xor_sync(kAllLanes, new_max[1], offset));
    }
    const bool grows = new_max[0] > max[h][0] || new_max[1] > max[h][1];
    if (__any_sync(kAllLanes, grows)) {
      float scale[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        new_max[i] = fmaxf(new_max[i], max[h][i]);
        scale[i] = Exp2(max[h][i] - new_max[i]);
        max[h][i] = new_max[i];
        sum[h][i] *= scale[i];
      }
#pragma unroll
      for (int m = 0; m < kSteps; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[h][m][i] *= scale[i % 2];
      }
    }
#pragma unroll
    for (int t = 0; t < kLaneTokens; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[t][i] = Exp2(s[t][i] - max[h][i]);
        sum[h][i] += s[t][i];
      }
    }
  }

  __device__ __forceinline__ void ReduceSums() {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        sum[h][0] += __shfl_xor_sync(kAllLanes, sum[h][0], offset);
        sum[h][1] += __shfl_xor_sync(kAllLanes, sum[h][1], offset);
      }
    }
  }

  // write(row, h, i): this lane's outputs o[h][m][i] and o[h][m][i + 2] to their head's row of the slot.
  template <typename Write>
  __device__ __forceinline__ void WriteHeads(const Slot& slot, int lane, Write&& write) const {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int head = h * kDecodeHeadTile + lane % 4 * 2 + i;
        if (head >= slot.group) continue;
        write(slot.template Row<kHeadDim>(head), h, i);
        if (lane < 4) {
          slot.template Max<kHeadDim>()[head] = max[h][i];
          slot.template Sum<kHeadDim>()[head] = sum[h][i];
        }
      }
    }
  }
};

}  // namespace decode
}  // namespace tandem
