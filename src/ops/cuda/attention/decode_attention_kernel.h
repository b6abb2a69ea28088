// Between decode_attention.cc and the units that hold the kernel, one a dtype of q and
// out and a kind of cache.
#pragma once

#include <cstdint>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/attention/decode_attention.h"

namespace tandem {

// Query heads are taken in tiles of 8: the width of the mma.
constexpr int kDecodeHeadTile = 8;

// A part is K or V of a tile: what a warp copies, waits for and gives up at a time. coded: of 8 bits, codes
// and their scales.
constexpr int DecodePartBytes(int head_dim, bool coded) {
  return coded ? kDecodeTileTokens * (head_dim + 2) : kDecodeTileTokens * head_dim * 2;
}
// Parts that a warp keeps in shared memory, as a ring: 24 KiB, or three if they are larger. Of codes half the
// bytes, since there are more warps.
constexpr int DecodeStages(int head_dim, bool /*coded*/) {
  return head_dim <= 64 ? 6 : 3;
}
// A tile of codes has half the bytes, and what waits in it for one another is the same: twice the warps,
// where their registers allow it.
constexpr int DecodeMaxWarps(int head_dim, int head_tiles, bool coded) {
  return coded && head_tiles == 1 && head_dim <= 128 ? 16 : 8;
}
// A partial result in shared memory: rows of head_dim floats, 4 apart so that they lie in different banks,
// then the maxima and the sums.
constexpr int DecodeSlotStride(int head_dim) {
  return head_dim + 4;
}
constexpr int DecodeSlotFloats(int head_dim, int group) {
  return (group * DecodeSlotStride(head_dim) + 2 * group + 3) / 4 * 4;
}

struct DecodeAttentionParams {
  const int32_t* plan;
  const void* q;
  void* out;
  const void* kv;
  int64_t q_stride;    // elements between rows
  int64_t out_stride;  // likewise
  int32_t num_kv_heads;
  int32_t group;  // query heads a kv head
  int32_t window;
  float scale_log2;   // scale * log2(e)
  float* partials;    // [CTA][2][DecodePartialFloats]
  int32_t* counters;  // [CTA]
};

// A partial result in the workspace: [group][head_dim], maxima, sums.
constexpr int DecodePartialFloats(int head_dim, int group) {
  return (group * head_dim + 2 * group + 3) / 4 * 4;
}

// The kernel of compute capability 7.5 has tiles in registers: in shared memory each warp has a slot for what
// it begins with, and the CTA has one for what it ends with.
// Registers say how many warps there are.
constexpr int DirectDecodeMaxWarps(int head_dim, int head_tiles) {
  return head_dim * head_tiles <= 64 ? 12 : 8;
}

// With params null: prepares instead of launching.
void LaunchDecodeAttentionBf16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                               const DecodeAttentionParams* params, int group);
void LaunchDecodeAttentionFp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                               const DecodeAttentionParams* params, int group);
void LaunchDecodeAttentionInt8Bf16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                   const DecodeAttentionParams* params, int group);
void LaunchDecodeAttentionInt8Fp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                   const DecodeAttentionParams* params, int group);
void LaunchDecodeAttentionFp8Bf16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                  const DecodeAttentionParams* params, int group);
void LaunchDecodeAttentionFp8Fp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                  const DecodeAttentionParams* params, int group);
// Of compute capability 7.5; head_dim 64 and 128.
void LaunchDirectDecodeAttentionFp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                     const DecodeAttentionParams* params, int group);
void LaunchDirectDecodeAttentionInt8Fp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                         const DecodeAttentionParams* params, int group);
void LaunchDirectDecodeAttentionFp8Fp16(CudaStream* stream, int head_dim, const DecodeLaunch& launch,
                                        const DecodeAttentionParams* params, int group);

}  // namespace tandem
