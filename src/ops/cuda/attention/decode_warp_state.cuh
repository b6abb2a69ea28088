// One warp's state over tiles of 16-bit K and V.
#pragma once

#include <cstdint>

#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_mma.cuh"
#include "ops/cuda/attention/decode_softmax.cuh"

namespace tandem {
namespace decode {

// A lane's tokens are g, g + 8, g + 16 and g + 24 of the tile, its outputs' elements 16 * m + g and + 8.
template <typename T, int kHeadDimValue, int kHeadTilesValue>
struct WarpState : OnlineSoftmax<kHeadDimValue, kHeadTilesValue> {
  using Element = T;
  using Base = OnlineSoftmax<kHeadDimValue, kHeadTilesValue>;
  using Base::kLaneTokens;
  using Base::kSteps;
  using Base::o;
  using Base::sum;
  static constexpr int kHeadDim = kHeadDimValue;
  static constexpr int kHeadTiles = kHeadTilesValue;
  static constexpr bool kCoded = false;
  static constexpr bool kQueryAhead = true;
  static constexpr int kHalves = kTileTokens / 16;  // rows of an mma
  static constexpr int kRowBytes = kHeadDim * 2;

  // Query heads of a kv head as the right side of the mma.
  struct Query {
    uint32_t words[kHeadTiles][kSteps][2];
  };

  Query q;
  uint32_t p[kHeadTiles][kHalves][2];  // of the tile whose V comes next

  // Past L1, which may hold the rows of the layer before.
  static __device__ __forceinline__ void LoadQuery(const DecodeAttentionParams& params, const Cursor& cursor,
                                                   int lane, Query* query) {
    ForQueryRows<T, kHeadDim, kHeadTiles>(params, cursor, lane, [&](int h, const T* row, bool valid) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const unsigned values =
              __ldcg(reinterpret_cast<const unsigned*>(row + lane % 4 * 2 + k * 16 + i * 8));
          query->words[h][k][i] = valid ? values : 0;
        }
      }
    });
  }
  __device__ __forceinline__ void TakeQuery(const Query& query, int /*lane*/) {
    q = query;
  }

  // Starts the copy of K or V of the tile at cursor, whose block number is given.
  template <bool kIsV>
  static __device__ __forceinline__ void CopyPart(const DecodeAttentionParams& params, const Cursor& cursor,
                                                  int block, uint32_t destination, int lane) {
    constexpr int kRowPieces = kHeadDim / 8;  // of 16 bytes
    constexpr int kRowsAtOnce = 32 / kRowPieces;
    constexpr int kCopies = kTileTokens / kRowsAtOnce;
    constexpr int64_t kPartElements = kTileTokens * kHeadDim;
    const T* source =
        static_cast<const T*>(params.kv) + cursor.PartsBefore(params, block, kIsV) * kPartElements + lane * 8;
    // Piece p of row r lies at place p ^ (r % 8).
    const int lane_row = lane / kRowPieces;
    const auto lane_place =
        static_cast<uint32_t>(lane_row * kRowPieces * 16 + ((lane % kRowPieces) ^ lane_row) * 16);
    const auto to = [&](int step) {
      const int row = step * kRowsAtOnce;
      return destination + (lane_place ^ static_cast<uint32_t>(row % 8 * 16)) +
             static_cast<uint32_t>(row * kRowPieces * 16);
    };
    const int first = cursor.first_token - cursor.tile * kTileTokens;
    const int end = cursor.context_len - cursor.tile * kTileTokens;
    if (first <= 0 && end >= kTileTokens) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) CopyAsync(to(i), source + i * 256);
      return;
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      // Past the ends lies what nobody wrote, or a NaN of someone else's.
      const int row = i * kRowsAtOnce + lane_row;
      CopyAsync(to(i), source + i * 256, row >= first && row < end);
    }
  }

  // Where piece 2 * k + half of a row lies in it: at place piece ^ (row % 8), row % 8 being lane % 8 in all
  // that a lane reads.
  static __device__ __forceinline__ uint32_t PlaceOf(int k, uint32_t half_and_swizzle) {
    return static_cast<uint32_t>(k / 4 * 128) + (half_and_swizzle ^ static_cast<uint32_t>(k % 4 * 32));
  }
  static __device__ __forceinline__ uint32_t HalfAndSwizzle(int half, int lane) {
    return static_cast<uint32_t>((half ^ lane % 8) * 16);
  }

  // keys: K of a tile, [32][kHeadDim], 16-byte pieces of row r at place piece ^ (r % 8). Tokens outside
  // [first, end) of the 32 are not seen; there is one that is.
  __device__ __forceinline__ void AddKeys(uint32_t keys, int first, int end, float scale_log2, int lane) {
    float scores[kHeadTiles][kHalves][2][4] = {};
    const uint32_t row = keys + static_cast<uint32_t>(lane % 16 * kRowBytes);
    const uint32_t place = HalfAndSwizzle(lane / 16, lane);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        uint32_t a[4];
        LoadMatrices(row + PlaceOf(k, place) + static_cast<uint32_t>(half * 16 * kRowBytes), a);
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h)
          Mma<T>(scores[h][half][k % 2], a, q.words[h][k][0], q.words[h][k][1]);
      }
    }

    const auto factor_of = [scale_log2](int) { return scale_log2; };
    const auto token_of = [lane](int t) { return t * 8 + lane / 4; };
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      float s[kLaneTokens][2];
      this->WeighSeen(h, scores[h], first, end, factor_of, token_of, s);
#pragma unroll
      for (int t = 0; t < kLaneTokens; ++t)
        p[h][t / 2][t % 2] = TransposeBlock(PackPair<T>(s[t][0], s[t][1]));
    }
  }

  // values: V of the tile whose K came last, laid out alike.
  __device__ __forceinline__ void AddValues(uint32_t values, int lane) {
    const uint32_t row = values + static_cast<uint32_t>((lane % 8 + lane / 16 * 8) * kRowBytes);
    const uint32_t place = HalfAndSwizzle(lane / 8 % 2, lane);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int m = 0; m < kSteps; ++m) {
        uint32_t a[4];
        LoadMatricesTransposed(row + PlaceOf(m, place) + static_cast<uint32_t>(half * 16 * kRowBytes), a);
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h) Mma<T>(o[h][m], a, p[h][half][0], p[h][half][1]);
      }
    }
  }

  // out: [group][kHeadDim].
  __device__ __forceinline__ void WriteOutput(T* out, int group, int lane) {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      const float scale[2] = {1.0F / sum[h][0], 1.0F / sum[h][1]};
      const int head = h * kDecodeHeadTile + lane / 4;
      T* row = out + head * kHeadDim + lane % 4 * 2;
#pragma unroll
      for (int m = 0; m < kSteps; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t values =
              TransposeBlock(PackPair<T>(o[h][m][half * 2] * scale[0], o[h][m][half * 2 + 1] * scale[1]));
          if (head < group) *reinterpret_cast<uint32_t*>(row + m * 16 + half * 8) = values;
        }
      }
    }
  }

  __device__ __forceinline__ void WriteSlot(const Slot& slot, int lane) const {
    this->WriteHeads(slot, lane, [&](float* row, int h, int i) {
#pragma unroll
      for (int m = 0; m < kSteps; ++m) {
        row[m * 16 + lane / 4] = o[h][m][i];
        row[m * 16 + 8 + lane / 4] = o[h][m][i + 2];
      }
    });
  }
};

}  // namespace decode
}  // namespace tandem
