// One warp's online softmax over tiles of 32 tokens.
#pragma once

#include <cstdint>

#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_merge.cuh"
#include "ops/cuda/attention/decode_mma.cuh"

namespace tandem {
namespace decode {

constexpr int kTileTokens = kDecodeTileTokens;

// What a warp knows of the (sequence, kv head) it is at. Lane 4 * g + c holds, of tile h of 8 query heads,
// scores of heads 8 * h + 2 * c and + 1 for tokens g, g + 8, g + 16 and g + 24, and outputs of the same heads
// for elements 16 * m + g and + 8.
template <typename T, int kHeadDim, int kHeadTiles>
struct WarpState {
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kHalves = kTileTokens / 16;  // rows of an mma
  static constexpr int kRowBytes = kHeadDim * 2;

  uint32_t q[kHeadTiles][kSteps][2];
  float o[kHeadTiles][kSteps][4];
  uint32_t p[kHeadTiles][kHalves][2];  // of the tile whose V comes next
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
        for (int h = 0; h < kHeadTiles; ++h) Mma<T>(scores[h][half][k % 2], a, q[h][k][0], q[h][k][1]);
      }
    }

    const bool sees_all = first <= 0 && end >= kTileTokens;
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      float s[kHalves][4];
      float new_max[2] = {kMinusInfinity, kMinusInfinity};
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[half][i] = (scores[h][half][0][i] + scores[h][half][1][i]) * scale_log2;
      }
      if (!sees_all) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int token = half * 16 + i / 2 * 8 + lane / 4;
            if (token < first || token >= end) s[half][i] = kMinusInfinity;
          }
        }
      }
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) new_max[i % 2] = fmaxf(new_max[i % 2], s[half][i]);
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
      for (int half = 0; half < kHalves; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          s[half][i] = Exp2(s[half][i] - max[h][i % 2]);
          sum[h][i % 2] += s[half][i];
        }
        p[h][half][0] = TransposeBlock(PackPair<T>(s[half][0], s[half][1]));
        p[h][half][1] = TransposeBlock(PackPair<T>(s[half][2], s[half][3]));
      }
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
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int head = h * kDecodeHeadTile + lane % 4 * 2 + i;
        if (head >= slot.group) continue;
        float* row = slot.template Row<kHeadDim>(head) + lane / 4;
#pragma unroll
        for (int m = 0; m < kSteps; ++m) {
          row[m * 16] = o[h][m][i];
          row[m * 16 + 8] = o[h][m][i + 2];
        }
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
