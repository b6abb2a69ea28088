// The loops behind ConvertElements. Included by one source file per instruction set, which the compiler
// vectorizes with that file's flags. Everything is in an unnamed namespace, and no inline function of another
// header is called: a copy compiled for AVX2 must never be the one the linker keeps for other callers.
//
// Sums are not contracted to fused multiply-adds (-ffp-contract=off), so that all instruction sets give the
// same bits, those of llama.cpp's reference dequantizers.
#pragma once

#include <cstdint>
#include <cstring>

#include "load/block_fields.h"
#include "load/quantization.h"

namespace tandem {
namespace {

// Values converted at a time: a multiple of every block's size; the fp32 intermediate stays in the L1 cache.
constexpr int64_t kChunkElements = 1024;

inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  // Adding 0.5 aligns a subnormal half's bits at the end of the mantissa, rounding to nearest even.
  const uint32_t subnormal = FloatBits(BitsFloat(magnitude) + 0.5F) - 0x3f000000U;
  const uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  uint32_t half = magnitude < 0x38800000U ? subnormal : normal;
  // From 65520 on, values round to infinity.
  half = magnitude >= 0x477ff000U ? 0x7c00U : half;
  half = magnitude > 0x7f800000U ? 0x7e00U : half;
  return static_cast<uint16_t>(sign | half);
}

inline uint16_t FloatToBrainFloat(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40U;
  return static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
}

// --- One format each: num_elements values at src to fp32.

void DequantizeF16(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t i = 0; i < num_elements; ++i) dst[i] = HalfToFloat(LoadU16(src + 2 * i));
}

void DequantizeBF16(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t i = 0; i < num_elements; ++i)
    dst[i] = BitsFloat(static_cast<uint32_t>(LoadU16(src + 2 * i)) << 16);
}

// fp16 scale, 32 int8.
void DequantizeQ8_0(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t begin = 0; begin < num_elements; begin += 32, src += 34, dst += 32) {
    const float scale = LoadHalf(src);
    const uint8_t* quants = src + 2;
    for (int i = 0; i < 32; ++i) dst[i] = static_cast<float>(static_cast<int8_t>(quants[i])) * scale;
  }
}

// fp16 scale, 16 bytes: low nibbles are values 0..15 of the block, high nibbles 16..31.
void DequantizeQ4_0(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t begin = 0; begin < num_elements; begin += 32, src += 18, dst += 32) {
    const float scale = LoadHalf(src);
    const uint8_t* quants = src + 2;
    for (int i = 0; i < 16; ++i) dst[i] = scale * static_cast<float>((quants[i] & 15) - 8);
    for (int i = 0; i < 16; ++i) dst[i + 16] = scale * static_cast<float>((quants[i] >> 4) - 8);
  }
}

// fp16 scale, fp16 minimum, 16 bytes of nibbles.
void DequantizeQ4_1(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t begin = 0; begin < num_elements; begin += 32, src += 20, dst += 32) {
    const float scale = LoadHalf(src);
    const float minimum = LoadHalf(src + 2);
    const uint8_t* quants = src + 4;
    for (int i = 0; i < 16; ++i) dst[i] = scale * static_cast<float>(quants[i] & 15) + minimum;
    for (int i = 0; i < 16; ++i) dst[i + 16] = scale * static_cast<float>(quants[i] >> 4) + minimum;
  }
}

// fp16 scale, 32 fifth bits, 16 bytes of nibbles.
void DequantizeQ5_0(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t begin = 0; begin < num_elements; begin += 32, src += 22, dst += 32) {
    const float scale = LoadHalf(src);
    const uint32_t high = LoadU32(src + 2);
    const uint8_t* quants = src + 6;
    for (int i = 0; i < 16; ++i) {
      const auto fifth = static_cast<int>((high >> i) & 1U);
      dst[i] = scale * static_cast<float>(((quants[i] & 15) | (fifth << 4)) - 16);
    }
    for (int i = 0; i < 16; ++i) {
      const auto fifth = static_cast<int>((high >> (i + 16)) & 1U);
      dst[i + 16] = scale * static_cast<float>(((quants[i] >> 4) | (fifth << 4)) - 16);
    }
  }
}

// fp16 scale, fp16 minimum, 32 fifth bits, 16 bytes of nibbles.
void DequantizeQ5_1(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t begin = 0; begin < num_elements; begin += 32, src += 24, dst += 32) {
    const float scale = LoadHalf(src);
    const float minimum = LoadHalf(src + 2);
    const uint32_t high = LoadU32(src + 4);
    const uint8_t* quants = src + 8;
    for (int i = 0; i < 16; ++i) {
      const auto fifth = static_cast<int>((high >> i) & 1U);
      dst[i] = scale * static_cast<float>((quants[i] & 15) | (fifth << 4)) + minimum;
    }
    for (int i = 0; i < 16; ++i) {
      const auto fifth = static_cast<int>((high >> (i + 16)) & 1U);
      dst[i + 16] = scale * static_cast<float>((quants[i] >> 4) | (fifth << 4)) + minimum;
    }
  }
}

// fp16 scale and minimum of the super-block, 12 bytes of group scales, 128 bytes: every 32 bytes hold
// one group of 32 in their low nibbles and the next in their high nibbles.
void DequantizeQ4_K(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t begin = 0; begin < num_elements; begin += 256, src += 144) {
    const GroupScales groups = UnpackGroupScales(src + 4, LoadHalf(src), LoadHalf(src + 2));
    const uint8_t* quants = src + 16;
    for (int g = 0; g < 8; g += 2, quants += 32, dst += 64) {
      for (int i = 0; i < 32; ++i)
        dst[i] = groups.scale[g] * static_cast<float>(quants[i] & 15) - groups.minimum[g];
      for (int i = 0; i < 32; ++i)
        dst[i + 32] = groups.scale[g + 1] * static_cast<float>(quants[i] >> 4) - groups.minimum[g + 1];
    }
  }
}

// As Q4_K, with 32 bytes before the nibbles whose bit g is the fifth bit of group g.
void DequantizeQ5_K(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t begin = 0; begin < num_elements; begin += 256, src += 176) {
    const GroupScales groups = UnpackGroupScales(src + 4, LoadHalf(src), LoadHalf(src + 2));
    const uint8_t* high = src + 16;
    const uint8_t* quants = src + 48;
    for (int g = 0; g < 8; g += 2, quants += 32, dst += 64) {
      for (int i = 0; i < 32; ++i) {
        const int value = (quants[i] & 15) | (((high[i] >> g) & 1) << 4);
        dst[i] = groups.scale[g] * static_cast<float>(value) - groups.minimum[g];
      }
      for (int i = 0; i < 32; ++i) {
        const int value = (quants[i] >> 4) | (((high[i] >> (g + 1)) & 1) << 4);
        dst[i + 32] = groups.scale[g + 1] * static_cast<float>(value) - groups.minimum[g + 1];
      }
    }
  }
}

// 128 bytes of nibbles, 64 bytes of bit pairs, 16 int8 group scales, fp16 scale. Each half of 128 values has
// 64 bytes (its values 0..63 in the low nibbles, 64..127 in the high ones) and 32 bytes of pairs (values
// 32 * k + i in the bits 2k of byte i).
void DequantizeQ6_K(const uint8_t* __restrict src, int64_t num_elements, float* __restrict dst) {
  for (int64_t begin = 0; begin < num_elements; begin += 256, src += 210) {
    const float scale = LoadHalf(src + 208);
    for (int half = 0; half < 2; ++half, dst += 128) {
      const uint8_t* low = src + 64 * half;
      const uint8_t* high = src + 128 + 32 * half;
      const uint8_t* scales = src + 192 + 8 * half;
      for (int group = 0; group < 8; ++group) {  // of 16 values
        const int quarter = group / 2;
        const int offset = 16 * (group % 2);
        const uint8_t* nibbles = low + 32 * (quarter % 2) + offset;
        const int nibble_shift = 4 * (quarter / 2);
        const float group_scale = scale * static_cast<float>(static_cast<int8_t>(scales[group]));
        for (int i = 0; i < 16; ++i) {
          const int value =
              ((nibbles[i] >> nibble_shift) & 15) | (((high[offset + i] >> (2 * quarter)) & 3) << 4);
          dst[16 * group + i] = group_scale * static_cast<float>(value - 32);
        }
      }
    }
  }
}

void DequantizeChunk(GgmlType type, const uint8_t* src, int64_t num_elements, float* dst) {
  switch (type) {
    case GgmlType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(num_elements) * sizeof(float));
      return;
    case GgmlType::kF16:
      return DequantizeF16(src, num_elements, dst);
    case GgmlType::kBF16:
      return DequantizeBF16(src, num_elements, dst);
    case GgmlType::kQ8_0:
      return DequantizeQ8_0(src, num_elements, dst);
    case GgmlType::kQ4_0:
      return DequantizeQ4_0(src, num_elements, dst);
    case GgmlType::kQ4_1:
      return DequantizeQ4_1(src, num_elements, dst);
    case GgmlType::kQ5_0:
      return DequantizeQ5_0(src, num_elements, dst);
    case GgmlType::kQ5_1:
      return DequantizeQ5_1(src, num_elements, dst);
    case GgmlType::kQ4_K:
      return DequantizeQ4_K(src, num_elements, dst);
    case GgmlType::kQ5_K:
      return DequantizeQ5_K(src, num_elements, dst);
    case GgmlType::kQ6_K:
      return DequantizeQ6_K(src, num_elements, dst);
  }
}

void RoundToBF16(const float* __restrict src, int64_t num_elements, uint16_t* __restrict dst) {
  for (int64_t i = 0; i < num_elements; ++i) dst[i] = FloatToBrainFloat(src[i]);
}

void RoundToF16(const float* __restrict src, int64_t num_elements, uint16_t* __restrict dst) {
  for (int64_t i = 0; i < num_elements; ++i) dst[i] = FloatToHalf(src[i]);
}

void ConvertChunks(GgmlType type, uint32_t block_elements, uint32_t block_bytes, const uint8_t* src,
                   int64_t num_elements, DType dtype, void* dst) {
  if (dtype == DType::kF32) return DequantizeChunk(type, src, num_elements, static_cast<float*>(dst));
  alignas(64) float chunk[kChunkElements];
  auto* out = static_cast<uint16_t*>(dst);
  while (num_elements > 0) {
    const int64_t count = num_elements < kChunkElements ? num_elements : kChunkElements;
    DequantizeChunk(type, src, count, chunk);
    if (dtype == DType::kBF16) {
      RoundToBF16(chunk, count, out);
    } else {
      RoundToF16(chunk, count, out);
    }
    src += count / block_elements * block_bytes;
    out += count;
    num_elements -= count;
  }
}

}  // namespace
}  // namespace tandem
