// K or V of one token and head in the registers of a warp, to codes and back. The operations of kv_codes.cc
// in their order, none of them fused: the same codes as on the host. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cpu_attention/kv_block.h"
#include "cpu_attention/kv_codes.h"
#include "ops/cuda/kv_codes/coded_heads.h"
#include "ops/cuda/row_access.h"

namespace tandem {

// Of lane l: elements l, l + 32, ... of the head. kRuns * 32 is at least head_dim; what is beyond is 0.
template <int kRuns>
struct WarpHead {
  static constexpr unsigned kAllLanes = 0xffffffffU;

  float values[kRuns];

  // Past L1, which may hold what lay there before.
  template <typename T>
  __device__ __forceinline__ void Load(const T* row, int head_dim, int lane) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int d = lane + 32 * i;
      values[i] = d < head_dim ? ToFloat(__ldcg(row + d)) : 0.0F;
    }
  }
  template <typename T>
  __device__ __forceinline__ void Store(T* row, int head_dim, int lane) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int d = lane + 32 * i;
      if (d < head_dim) row[d] = RoundTo<T>(values[i]);
    }
  }

  // RotateHead. Elements that are rotated together lie in one run, or their number is a multiple of 32.
  __device__ __forceinline__ void Rotate(const CodedHeads& heads, int lane) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      if (distance >= heads.rotation_size) break;
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        const float other = __shfl_xor_sync(kAllLanes, values[i], distance);
        values[i] = (lane & distance) != 0 ? __fsub_rn(other, values[i]) : __fadd_rn(values[i], other);
      }
    }
#pragma unroll
    for (int step = 1; step < kRuns; step *= 2) {
      if (32 * step >= heads.rotation_size) break;
#pragma unroll
      for (int i = 0; i + step < kRuns; ++i) {
        if ((i & step) != 0) continue;
        const float sum = __fadd_rn(values[i], values[i + step]);
        values[i + step] = __fsub_rn(values[i], values[i + step]);
        values[i] = sum;
      }
    }
#pragma unroll
    for (int i = 0; i < kRuns; ++i) values[i] = __fmul_rn(values[i], heads.rotation_factor);
  }

  // EncodeHead, to token of a tile; K is rotated. tile: in any memory.
  __device__ __forceinline__ void WriteCodes(const CodedHeads& heads, bool is_value, uint8_t* tile, int token,
                                             int lane) const {
    float largest = 0.0F;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) largest = fmaxf(largest, fabsf(values[i]));
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, offset));
    }
    const bf16_t scale = ScaleOf(heads.code, largest);
    const float step = BF16ToF32(scale);
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int d = lane + 32 * i;
      if (d >= heads.head_dim) continue;
      tile[Place(heads, is_value, token, d)] = ByteOf(heads.code, !is_value, values[i], step);
    }
    if (lane == 0) {
      *reinterpret_cast<bf16_t*>(tile + CodedScaleIndex(heads.tile_tokens, heads.head_dim, token)) = scale;
    }
  }
  // The reverse: K is as it was rotated.
  __device__ __forceinline__ void ReadCodes(const CodedHeads& heads, bool is_value, const uint8_t* tile,
                                            int token, int lane) {
    const float step = BF16ToF32(
        *reinterpret_cast<const bf16_t*>(tile + CodedScaleIndex(heads.tile_tokens, heads.head_dim, token)));
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int d = lane + 32 * i;
      values[i] = 0.0F;
      if (d >= heads.head_dim) continue;
      values[i] = __fmul_rn(step, NumberOf(heads.code, !is_value, tile[Place(heads, is_value, token, d)]));
    }
  }

 private:
  static __device__ __forceinline__ int64_t Place(const CodedHeads& heads, bool is_value, int token, int d) {
    return is_value ? CodedValueIndex(heads.tile_tokens, token, d)
                    : CodedKeyIndex(heads.tile_tokens, token, d);
  }
};

// function(Runs<kRuns>{}) for the fewest runs that hold a head.
template <int kCount>
struct Runs {
  static constexpr int kRuns = kCount;
};
template <typename Function>
void WithRuns(int head_dim, Function&& function) {
  TANDEM_CHECK(head_dim > 0 && head_dim <= kMaxCodedHeadDim, "codes of heads of {}", head_dim);
  if (head_dim <= 32) return function(Runs<1>{});
  if (head_dim <= 64) return function(Runs<2>{});
  if (head_dim <= 128) return function(Runs<4>{});
  function(Runs<8>{});
}

}  // namespace tandem
