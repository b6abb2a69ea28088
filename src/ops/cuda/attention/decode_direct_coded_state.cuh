// The state of decode_coded_state.cuh with tiles of codes in registers, for compute capability 7.5: what a
// lane reads of a tile lies in memory as it wants it.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_coded_layout.h"
#include "ops/cuda/attention/decode_coded_state.cuh"
#include "ops/cuda/attention/decode_softmax.cuh"
#include "ops/cuda/register_loads.cuh"

namespace tandem {
namespace decode {

template <typename Codes, int kHeadDimValue, int kHeadTilesValue>
struct DirectCodedState : CodedWarpState<__half, Codes, kHeadDimValue, kHeadTilesValue> {
  static constexpr int kHeadDim = kHeadDimValue;
  static constexpr int kTokens = kTileTokens;
  static constexpr int kNumPieces = CodedPieces(kHeadDim) / 32;

  // K or V of a tile.
  struct Part {
    uint4 pieces[kNumPieces];
    uint2 scales;

    __device__ __forceinline__ const uint4& KeyPieceOf(int k) const { return pieces[k]; }
    __device__ __forceinline__ const uint4& ValuePieceOf(int n, int e) const { return pieces[2 * n + e]; }
    __device__ __forceinline__ const uint2& Scales() const { return scales; }
  };

  // Of the tile at cursor, whose block number is given. Also of tokens that are not seen, whose codes are
  // some numbers and whose scales may be none.
  template <bool kIsV>
  static __device__ __forceinline__ void Load(const DecodeAttentionParams& params, const Cursor& cursor,
                                              int block, int /*begin*/, int lane, Part* part) {
    constexpr int64_t kPartBytes = DecodePartBytes(kHeadDim, true);
    const auto* source =
        static_cast<const std::byte*>(params.kv) + cursor.PartsBefore(params, block, kIsV) * kPartBytes;
    const std::byte* pieces = source + (kIsV ? ValuePiece(0, 0, lane) : KeyPiece(0, lane)) * kPieceBytes;
#pragma unroll
    for (int i = 0; i < kNumPieces; ++i) {
      const int piece =
          kIsV ? ValuePiece(i / 2, i % 2, 0) - ValuePiece(0, 0, 0) : KeyPiece(i, 0) - KeyPiece(0, 0);
      part->pieces[i] = LoadOnce(pieces + piece * kPieceBytes);
    }
    part->scales = LoadOnce8(source + CodedScalesBegin(kHeadDim) + LaneToken(lane, 0) * 2);
  }

  __device__ __forceinline__ void AddKeys(const Part& keys, int first, int end, float scale_log2, int lane) {
    this->AddKeysOf(keys, first, end, scale_log2, lane);
  }
  __device__ __forceinline__ void AddValues(const Part& values, int lane) {
    this->AddValuesOf(values, lane);
  }

  // Of outputs o[h][m][i] and, e 1, o[h][m][2 + i].
  static __device__ __forceinline__ int OutputElement(int m, int e, int lane) {
    return LaneElement(m / 2, lane, m % 2 * 2 + e);
  }
};

template <int kHeadDim, int kHeadTiles>
using DirectInt8State = DirectCodedState<Int8Codes, kHeadDim, kHeadTiles>;
template <int kHeadDim, int kHeadTiles>
using DirectFp8State = DirectCodedState<Fp8Codes, kHeadDim, kHeadTiles>;

}  // namespace decode
}  // namespace tandem
