// One warp's state over tiles of fp16 K and V that come from memory straight into registers, each lane's 16
// bytes at a time: for compute capability 7.5, which has no asynchronous copies.
//
// K is the left side of an mma (tokens x elements) and so is V (elements x tokens). Which element stands in
// which column of the one, or row of the other, is free as long as the other side has the same; here it is
// what a lane has read. Lane 4 * g + c, of every 8 tokens:
//
//   K   token g, elements 32 * j + 8 * c .. + 7: word i is columns 2 * c and 2 * c + 1 of step 4 * j + i
//   V   tokens 2 * c and 2 * c + 1, elements 64 * j + 8 * g .. + 7: of word i of both, the low halves are row
//       g of step 4 * j + i, and the high halves row g + 8
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_mma.cuh"
#include "ops/cuda/attention/decode_softmax.cuh"
#include "ops/cuda/register_loads.cuh"

namespace tandem {
namespace decode {

// Tokens that are multiplied at once: a tile, or half of one where registers are short.
constexpr int DirectTokens(int head_dim, int head_tiles) {
  return head_dim * head_tiles > 128 ? kTileTokens / 2 : kTileTokens;
}

// A lane's outputs' elements of step 4 * j + i are 64 * j + 8 * g + 2 * i and + 1.
template <int kHeadDimValue, int kHeadTilesValue>
struct DirectWarpState
    : OnlineSoftmax<kHeadDimValue, kHeadTilesValue, DirectTokens(kHeadDimValue, kHeadTilesValue) / 8> {
  static constexpr int kHeadDim = kHeadDimValue;
  static constexpr int kHeadTiles = kHeadTilesValue;
  static constexpr int kTokens = DirectTokens(kHeadDim, kHeadTiles);
  using Base = OnlineSoftmax<kHeadDim, kHeadTiles, kTokens / 8>;
  using Base::kLaneTokens;
  using Base::kSteps;
  using Base::max;
  using Base::o;
  using Base::sum;
  static constexpr int kRowChunks = kHeadDim / 64;  // of V, which a lane has 8 elements of

  // K or V of kTokens.
  struct Part {
    uint4 pieces[kTokens * kHeadDim / 8 / 32];
  };
  // Query heads of a kv head as the right side of the mma.
  struct Query {
    uint32_t words[kHeadTiles][2 * kSteps];
  };

  Query q;
  uint32_t p[kHeadTiles][kLaneTokens];  // of the tokens whose V comes next

  // Past L1, which may hold the rows of the layer before.
  static __device__ __forceinline__ void LoadQuery(const DecodeAttentionParams& params, const Cursor& cursor,
                                                   int lane, Query* query) {
    ForQueryRows<__half, kHeadDim, kHeadTiles>(
        params, cursor, lane, [&](int h, const __half* row, bool valid) {
#pragma unroll
          for (int step = 0; step < 2 * kSteps; ++step) {
            const unsigned values =
                __ldcg(reinterpret_cast<const unsigned*>(row + step / 4 * 32 + lane % 4 * 8 + step % 4 * 2));
            query->words[h][step] = valid ? values : 0;
          }
        });
  }

  __device__ __forceinline__ void TakeQuery(const Query& query, int /*lane*/) {
    q = query;
  }

  // K or V of tokens begin to begin + kTokens of the tile at cursor, whose block number is given. Those that
  // are not seen, which nobody may have written, are zeros.
  template <bool kIsV>
  static __device__ __forceinline__ void Load(const DecodeAttentionParams& params, const Cursor& cursor,
                                              int block, int begin, int lane, Part* part) {
    // A lane's tokens: every eighth, or the first two of every eight from its own on.
    constexpr int kRowsOfEight = kIsV ? 2 : 1;
    constexpr int kPiecesOfRow = kIsV ? kRowChunks : kHeadDim / 32;
    constexpr int kPieceStep = kIsV ? 64 : 32;
    constexpr int64_t kPartElements = kTileTokens * kHeadDim;
    const int lane_token = begin + (kIsV ? lane % 4 * 2 : lane / 4);
    const int lane_element = (kIsV ? lane / 4 : lane % 4) * 8;
    const __half* source = static_cast<const __half*>(params.kv) +
                           cursor.PartsBefore(params, block, kIsV) * kPartElements + lane_token * kHeadDim +
                           lane_element;
    const auto for_rows = [&](const auto& load) {
#pragma unroll
      for (int eight = 0; eight < kTokens / 8; ++eight) {
#pragma unroll
        for (int row = 0; row < kRowsOfEight; ++row) {
          const int token = eight * 8 + row;
#pragma unroll
          for (int i = 0; i < kPiecesOfRow; ++i) {
            load(&part->pieces[(eight * kRowsOfEight + row) * kPiecesOfRow + i],
                 source + token * kHeadDim + i * kPieceStep, lane_token + token);
          }
        }
      }
    };
    const int first = cursor.first_token - cursor.tile * kTileTokens;
    const int end = cursor.context_len - cursor.tile * kTileTokens;
    if (first <= begin && end >= begin + kTokens) {
      for_rows([](uint4* to, const __half* from, int) { *to = LoadOnce(from); });
    } else {
      for_rows([&](uint4* to, const __half* from, int token) {
        *to = make_uint4(0, 0, 0, 0);
        if (token >= first && token < end) *to = LoadOnce(from);
      });
    }
  }

  // Of the kTokens those outside [first, end) are not seen; there is one that is.
  __device__ __forceinline__ void AddKeys(const Part& keys, int first, int end, float scale_log2, int lane) {
    constexpr int kHalves = kTokens / 16;  // rows of an mma
    constexpr int kPiecesOfRow = kHeadDim / 32;
    float scores[kHeadTiles][kHalves][2][4] = {};
#pragma unroll
    for (int j = 0; j < kPiecesOfRow; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const uint32_t upper = WordOf(keys.pieces[2 * half * kPiecesOfRow + j], i);
          const uint32_t lower = WordOf(keys.pieces[(2 * half + 1) * kPiecesOfRow + j], i);
#pragma unroll
          for (int h = 0; h < kHeadTiles; ++h)
            MultiplyAdd8(scores[h][half][i % 2], upper, lower, q.words[h][4 * j + i]);
        }
      }
    }

    const auto factor_of = [scale_log2](int) { return scale_log2; };
    const auto token_of = [lane](int t) { return t * 8 + lane / 4; };
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      float s[kLaneTokens][2];
      this->WeighSeen(h, scores[h], first, end, factor_of, token_of, s);
#pragma unroll
      for (int t = 0; t < kLaneTokens; ++t) p[h][t] = TransposeBlock(PackPair<__half>(s[t][0], s[t][1]));
    }
  }

  // V of the tokens whose K came last.
  __device__ __forceinline__ void AddValues(const Part& values, int /*lane*/) {
    constexpr unsigned kLowHalves = 0x5410;
    constexpr unsigned kHighHalves = 0x7632;
#pragma unroll
    for (int t = 0; t < kLaneTokens; ++t) {
#pragma unroll
      for (int j = 0; j < kRowChunks; ++j) {
        const uint4& first = values.pieces[2 * t * kRowChunks + j];
        const uint4& second = values.pieces[(2 * t + 1) * kRowChunks + j];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t upper = __byte_perm(WordOf(first, i), WordOf(second, i), kLowHalves);
          const uint32_t lower = __byte_perm(WordOf(first, i), WordOf(second, i), kHighHalves);
#pragma unroll
          for (int h = 0; h < kHeadTiles; ++h) MultiplyAdd8(o[h][4 * j + i], upper, lower, p[h][t]);
        }
      }
    }
  }

  // write(head, element, values): the lane's outputs, 8 neighbours at a time.
  template <typename Write>
  __device__ __forceinline__ void ForOutputs(int group, int lane, Write&& write) {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int head = h * kDecodeHeadTile + lane % 4 * 2 + i;
        if (head >= group) continue;
#pragma unroll
        for (int j = 0; j < kRowChunks; ++j) {
          float* const values[8] = {&o[h][4 * j][i],         &o[h][4 * j][i + 2],    &o[h][4 * j + 1][i],
                                    &o[h][4 * j + 1][i + 2], &o[h][4 * j + 2][i],    &o[h][4 * j + 2][i + 2],
                                    &o[h][4 * j + 3][i],     &o[h][4 * j + 3][i + 2]};
          write(h, i, head, j * 64 + lane / 4 * 8, values);
        }
      }
    }
  }

  // out: [group][kHeadDim].
  __device__ __forceinline__ void WriteOutput(__half* out, int group, int lane) {
    ForOutputs(group, lane, [&](int h, int i, int head, int element, float* const(&values)[8]) {
      const float scale = 1.0F / sum[h][i];
      uint32_t words[4];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair)
        words[pair] = PackPair<__half>(*values[2 * pair] * scale, *values[2 * pair + 1] * scale);
      auto* to = reinterpret_cast<uint2*>(out + head * kHeadDim + element);
      to[0] = make_uint2(words[0], words[1]);
      to[1] = make_uint2(words[2], words[3]);
    });
  }

  __device__ __forceinline__ void WriteSlot(const Slot& slot, int lane) {
    ForOutputs(slot.group, lane, [&](int, int, int head, int element, float* const(&values)[8]) {
      auto* to = reinterpret_cast<float4*>(slot.template Row<kHeadDim>(head) + element);
      to[0] = make_float4(*values[0], *values[1], *values[2], *values[3]);
      to[1] = make_float4(*values[4], *values[5], *values[6], *values[7]);
    });
    WriteWeights(slot, lane);
  }

  // Of outputs o[h][m][i] and, e 1, o[h][m][2 + i].
  static __device__ __forceinline__ int OutputElement(int m, int e, int lane) {
    return m / 4 * 64 + lane / 4 * 8 + m % 4 * 2 + e;
  }

 private:
  __device__ __forceinline__ void WriteWeights(const Slot& slot, int lane) const {
    if (lane >= 4) return;
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int head = h * kDecodeHeadTile + lane * 2 + i;
        if (head >= slot.group) continue;
        slot.template Max<kHeadDim>()[head] = max[h][i];
        slot.template Sum<kHeadDim>()[head] = sum[h][i];
      }
    }
  }
};

}  // namespace decode
}  // namespace tandem
