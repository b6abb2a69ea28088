// One warp's state over tiles of K and V of 8 bits. Codes are exact in 16 bits and multiplied as they are:
// scales of K go to the scores, those of V to the weights. q is rotated as K is.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_coded_layout.h"
#include "ops/cuda/attention/decode_mma.cuh"
#include "ops/cuda/attention/decode_softmax.cuh"
#include "ops/cuda/e4m3_values.cuh"

namespace tandem {
namespace decode {

// Four scales of a lane's tokens, bf16.
__device__ __forceinline__ void UnpackScales(const uint2& words, float (&scales)[4]) {
  scales[0] = __uint_as_float(words.x << 16);
  scales[1] = __uint_as_float(words.x & 0xffff0000U);
  scales[2] = __uint_as_float(words.y << 16);
  scales[3] = __uint_as_float(words.y & 0xffff0000U);
}

template <typename T>
__device__ __forceinline__ void UnpackPair(uint32_t pair, float* low, float* high) {
  if constexpr (std::is_same_v<T, __half>) {
    const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    *low = values.x;
    *high = values.y;
  } else {
    *low = __uint_as_float(pair << 16);
    *high = __uint_as_float(pair & 0xffff0000U);
  }
}

// KvCode::kInt8.
struct Int8Codes {
  // What makes signed codes, those of V, unsigned ones.
  static constexpr uint32_t kValueSigns = 0x80808080U;
  // Times what Numbers gives: the codes.
  template <typename T>
  static constexpr float kUnit = 1.0F;

  // The first two bytes of a word of unsigned codes, and the others: code - 128, exact.
  template <typename T>
  static __device__ __forceinline__ uint2 Numbers(uint32_t word) {
    return make_uint2(Pair<T, kLowTwoBytes>(word), Pair<T, kHighTwoBytes>(word));
  }

 private:
  template <typename T, unsigned kTwoBytes>
  static __device__ __forceinline__ uint32_t Pair(uint32_t word) {
    if constexpr (std::is_same_v<T, __half>) {
      // {code, 0x64} is 1024 + code.
      const uint32_t pair = __byte_perm(word, 0x64646464U, kTwoBytes);
      constexpr uint32_t kZero = 0x64806480U;
      const __half2 difference =
          __hsub2(*reinterpret_cast<const __half2*>(&pair), *reinterpret_cast<const __half2*>(&kZero));
      return *reinterpret_cast<const uint32_t*>(&difference);
    } else {
      // bf16 has seven bits below its first: 128 + (code % 128), less 128 where the eighth is set, else 256.
      const uint32_t pair = __byte_perm(word, 0x43434343U, kTwoBytes);
      const uint32_t low_bits = pair & 0xff7fff7fU;
      const uint32_t zero = (pair & 0xff80ff80U) ^ 0x00800080U;
      const __nv_bfloat162 difference = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&low_bits),
                                                *reinterpret_cast<const __nv_bfloat162*>(&zero));
      return *reinterpret_cast<const uint32_t*>(&difference);
    }
  }
};

// KvCode::kE4M3. By shifts on every GPU: those that convert in hardware (8.9, 9.0) make fp16 of E4M3, and
// bf16 only by way of fp32.
struct Fp8Codes {
  static constexpr uint32_t kValueSigns = 0;
  // fp16 has room for the small numbers that moved bits are: their product with 2^8 is left to the scales,
  // and so weights of fp16 do not become too small.
  template <typename T>
  static constexpr float kUnit = std::is_same_v<T, __half> ? 256.0F : 1.0F;

  template <typename T>
  static __device__ __forceinline__ uint2 Numbers(uint32_t word) {
    if constexpr (std::is_same_v<T, __half>) {
      return make_uint2(MovedHighBytes<T>(__byte_perm(word, 0, kLowBytesUp)),
                        MovedHighBytes<T>(__byte_perm(word, 0, kHighBytesUp)));
    } else {
      return ValuesOfE4M3<T>(word);
    }
  }
};

// Of o[h][m][i], m = 2 * n + t: element LaneElement(n, lane, 2 * t + i / 2).
template <typename T, typename Codes, int kHeadDimValue, int kHeadTilesValue>
struct CodedWarpState : OnlineSoftmax<kHeadDimValue, kHeadTilesValue> {
  using Element = T;
  using Base = OnlineSoftmax<kHeadDimValue, kHeadTilesValue>;
  using Base::kLaneTokens;
  using Base::kSteps;
  using Base::o;
  using Base::sum;
  static constexpr int kHeadDim = kHeadDimValue;
  static constexpr int kHeadTiles = kHeadTilesValue;
  static constexpr bool kCoded = true;
  // Where 16 warps share an SM a thread has 128 registers, and heads of 128 want them all.
  static constexpr bool kQueryAhead = kHeadDim != 128 || kHeadTiles > 1;
  static constexpr int kWords = 4;  // of a piece

  // Query heads of a kv head as the right side of the mma: words[h][k] are the elements from KeyElement(k,
  // lane) on of head 8 * h + lane / 4.
  struct Query {
    uint32_t words[kHeadTiles][kSteps][2];
  };

  Query q;                                    // rotated
  float weights[kHeadTiles][kLaneTokens][2];  // of the tile whose V comes next

  // As it is in memory. Past L1, which may hold the rows of the layer before.
  static __device__ __forceinline__ void LoadQuery(const DecodeAttentionParams& params, const Cursor& cursor,
                                                   int lane, Query* query) {
    ForQueryRows<T, kHeadDim, kHeadTiles>(params, cursor, lane, [&](int h, const T* row, bool valid) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        const uint2 values = __ldcg(reinterpret_cast<const uint2*>(row + KeyElement(k, lane)));
        query->words[h][k][0] = valid ? values.x : 0;
        query->words[h][k][1] = valid ? values.y : 0;
      }
    });
  }
  // Rotates it: the Hadamard matrix of the whole head, whose elements four lanes have.
  __device__ __forceinline__ void TakeQuery(const Query& query, int lane) {
    static_assert((kHeadDim & (kHeadDim - 1)) == 0, "all channels are rotated together");
    constexpr float kFactor = kHeadDim == 64 ? 0.125F : kHeadDim == 128 ? 0.08838834764831845F : 0.0625F;
    static_assert(kHeadDim == 64 || kHeadDim == 128 || kHeadDim == 256);
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      float x[kSteps][4];
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        UnpackPair<T>(query.words[h][k][0], &x[k][0], &x[k][1]);
        UnpackPair<T>(query.words[h][k][1], &x[k][2], &x[k][3]);
        // Within four, by one and by two.
        const float a = x[k][0] + x[k][1];
        const float b = x[k][0] - x[k][1];
        const float c = x[k][2] + x[k][3];
        const float d = x[k][2] - x[k][3];
        x[k][0] = a + c;
        x[k][1] = b + d;
        x[k][2] = a - c;
        x[k][3] = b - d;
      }
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float other = __shfl_xor_sync(kAllLanes, x[k][i], distance);
            x[k][i] = (lane & distance) != 0 ? other - x[k][i] : x[k][i] + other;
          }
        }
      }
#pragma unroll
      for (int step = 1; step < kSteps; step *= 2) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          if ((k & step) != 0) continue;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float sum_of_both = x[k][i] + x[k + step][i];
            x[k + step][i] = x[k][i] - x[k + step][i];
            x[k][i] = sum_of_both;
          }
        }
      }
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        q.words[h][k][0] = PackPair<T>(x[k][0] * kFactor, x[k][1] * kFactor);
        q.words[h][k][1] = PackPair<T>(x[k][2] * kFactor, x[k][3] * kFactor);
      }
    }
  }

  // Starts the copy of K or V of the tile at cursor, whose block number is given. Also of tokens that are not
  // seen, whose codes are some numbers and whose scales may be none.
  template <bool kIsV>
  static __device__ __forceinline__ void CopyPart(const DecodeAttentionParams& params, const Cursor& cursor,
                                                  int block, uint32_t destination, int lane) {
    constexpr int kPieces = CodedPieces(kHeadDim);
    constexpr int64_t kPartBytes = DecodePartBytes(kHeadDim, true);
    static_assert(kPieces % 32 == 0 && (kPieces + kScalePieces) * kPieceBytes == kPartBytes);
    const auto* source = static_cast<const std::byte*>(params.kv) +
                         cursor.PartsBefore(params, block, kIsV) * kPartBytes + lane * kPieceBytes;
    const uint32_t to = destination + static_cast<uint32_t>(CodedPlace(lane) * kPieceBytes);
#pragma unroll
    for (int i = 0; i < kPieces / 32; ++i)
      CopyAsync(to + static_cast<uint32_t>(i * 32 * kPieceBytes), source + i * 32 * kPieceBytes);
    if (lane < kScalePieces) {
      CopyAsync(destination + static_cast<uint32_t>((kPieces + lane) * kPieceBytes),
                source + kPieces * kPieceBytes);
    }
  }

  // K or V of a tile as CopyPart leaves it.
  struct PartInShared {
    uint32_t address;
    uint32_t lane_places[2];
    int lane;

    __device__ __forceinline__ uint4 KeyPieceOf(int k) const {
      return LoadShared(lane_places[0] +
                        static_cast<uint32_t>((KeyPiece(k, 0) - KeyPiece(0, 0)) * kPieceBytes));
    }
    __device__ __forceinline__ uint4 ValuePieceOf(int n, int e) const {
      return LoadShared(lane_places[e] +
                        static_cast<uint32_t>((ValuePiece(n, 0, 0) - ValuePiece(0, 0, 0)) * kPieceBytes));
    }
    __device__ __forceinline__ uint2 Scales() const {
      return LoadShared8(address +
                         static_cast<uint32_t>(CodedScalesBegin(kHeadDim) + LaneToken(lane, 0) * 2));
    }
  };

  __device__ __forceinline__ void AddKeys(uint32_t keys, int first, int end, float scale_log2, int lane) {
    const auto lane_keys = keys + static_cast<uint32_t>(CodedPlace(KeyPiece(0, lane)) * kPieceBytes);
    AddKeysOf(PartInShared{keys, {lane_keys, lane_keys}, lane}, first, end, scale_log2, lane);
  }
  __device__ __forceinline__ void AddValues(uint32_t values, int lane) {
    PartInShared part{values, {}, lane};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      part.lane_places[e] = values + static_cast<uint32_t>(CodedPlace(ValuePiece(0, e, lane)) * kPieceBytes);
    }
    AddValuesOf(part, lane);
  }

  // keys: K of a tile, whose pieces and scales it gives. Tokens outside [first, end) of the 32 are not seen;
  // there is one that is.
  template <typename Part>
  __device__ __forceinline__ void AddKeysOf(const Part& keys, int first, int end, float scale_log2,
                                            int lane) {
    float scores[kHeadTiles][2][2][4] = {};  // by two tokens of a lane, and by even and odd steps
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const uint4 piece = keys.KeyPieceOf(k);
      const uint32_t words[kWords] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 first_row = Codes::template Numbers<T>(words[2 * half]);
        const uint2 second_row = Codes::template Numbers<T>(words[2 * half + 1]);
        const uint32_t a[4] = {first_row.x, second_row.x, first_row.y, second_row.y};
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h)
          Mma<T>(scores[h][half][k % 2], a, q.words[h][k][0], q.words[h][k][1]);
      }
    }

    float scales[kLaneTokens];
    UnpackScales(keys.Scales(), scales);
    const float unit = scale_log2 * Codes::template kUnit<T>;
    const auto factor_of = [&scales, unit](int t) { return scales[t] * unit; };
    const auto token_of = [lane](int t) { return LaneToken(lane, t); };
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h)
      this->WeighSeen(h, scores[h], first, end, factor_of, token_of, weights[h]);
  }

  // values: V of the tile whose K came last.
  template <typename Part>
  __device__ __forceinline__ void AddValuesOf(const Part& values, int lane) {
    float scales[kLaneTokens];
    UnpackScales(values.Scales(), scales);
    // Of head 8 * h + lane / 4: tokens ValueToken(0, lane) + t and ValueToken(1, lane) + t.
    uint32_t p[kHeadTiles][kLaneTokens];
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int t = 0; t < kLaneTokens; ++t) {
        float scaled[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          // What is not seen may have a scale that is no number.
          const float scale = scales[t] * Codes::template kUnit<T>;
          scaled[i] = weights[h][t][i] > 0.0F ? weights[h][t][i] * scale : 0.0F;
        }
        p[h][t] = TransposeBlock(PackPair<T>(scaled[0], scaled[1]));
      }
    }

#pragma unroll
    for (int n = 0; n < kSteps / 2; ++n) {
      const uint4 early = values.ValuePieceOf(n, 0);
      const uint4 late = values.ValuePieceOf(n, 1);
      const uint32_t first_words[kWords] = {early.x, early.y, early.z, early.w};
      const uint32_t second_words[kWords] = {late.x, late.y, late.z, late.w};
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        uint32_t low[2];   // of rows g and g + 8: bytes 0 and 1 of either word
        uint32_t high[2];  // bytes 2 and 3
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const uint32_t first = first_words[2 * t + row];
          const uint32_t second = second_words[2 * t + row];
          low[row] = __byte_perm(first, second, kInterleaveLow) ^ Codes::kValueSigns;
          high[row] = __byte_perm(first, second, kInterleaveHigh) ^ Codes::kValueSigns;
        }
        const uint2 low_rows[2] = {Codes::template Numbers<T>(low[0]), Codes::template Numbers<T>(low[1])};
        const uint2 high_rows[2] = {Codes::template Numbers<T>(high[0]), Codes::template Numbers<T>(high[1])};
        const uint32_t a_low[4] = {low_rows[0].x, low_rows[1].x, low_rows[0].y, low_rows[1].y};
        const uint32_t a_high[4] = {high_rows[0].x, high_rows[1].x, high_rows[0].y, high_rows[1].y};
#pragma unroll
        for (int h = 0; h < kHeadTiles; ++h) {
          Mma<T>(o[h][2 * n + t], a_low, p[h][0], p[h][1]);
          Mma<T>(o[h][2 * n + t], a_high, p[h][2], p[h][3]);
        }
      }
    }
  }

  // out: [group][kHeadDim].
  __device__ __forceinline__ void WriteOutput(T* out, int group, int lane) {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      const float scale[2] = {1.0F / sum[h][0], 1.0F / sum[h][1]};
      const int head = h * kDecodeHeadTile + lane / 4;
      T* row = out + head * kHeadDim + lane % 4 * 8;
#pragma unroll
      for (int n = 0; n < kSteps / 2; ++n) {
        // Of head: elements 32 * n + 8 * c + i and + 4 + i.
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&of_step)[4] = o[h][2 * n + i / 2];
          words[i] =
              TransposeBlock(PackPair<T>(of_step[i % 2 * 2] * scale[0], of_step[i % 2 * 2 + 1] * scale[1]));
        }
        if (head < group) {
          auto* to = reinterpret_cast<uint2*>(row + n * 32);
          to[0] = make_uint2(__byte_perm(words[0], words[1], kLowHalves),
                             __byte_perm(words[2], words[3], kLowHalves));
          to[1] = make_uint2(__byte_perm(words[0], words[1], kHighHalves),
                             __byte_perm(words[2], words[3], kHighHalves));
        }
      }
    }
  }

  __device__ __forceinline__ void WriteSlot(const Slot& slot, int lane) const {
    this->WriteHeads(slot, lane, [&](float* row, int h, int i) {
#pragma unroll
      for (int n = 0; n < kSteps / 2; ++n) {
        *reinterpret_cast<float4*>(row + LaneElement(n, lane, 0)) =
            make_float4(o[h][2 * n][i], o[h][2 * n][2 + i], o[h][2 * n + 1][i], o[h][2 * n + 1][2 + i]);
      }
    });
  }
};

template <typename T, int kHeadDim, int kHeadTiles>
using Int8WarpState = CodedWarpState<T, Int8Codes, kHeadDim, kHeadTiles>;
template <typename T, int kHeadDim, int kHeadTiles>
using Fp8WarpState = CodedWarpState<T, Fp8Codes, kHeadDim, kHeadTiles>;

}  // namespace decode
}  // namespace tandem
