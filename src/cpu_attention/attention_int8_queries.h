// The queries of a head as the products with int8 keys read them, and what sums of these products become.
// Compiled once an instruction set (see simd.h).
#pragma once

#include <utility>

#include "cpu_attention/attention_int8_dot.h"
#include "cpu_attention/attention_softmax.h"
#include "cpu_attention/attention_workspace.h"
#include "cpu_attention/kv_block.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr float kMaxQueryNumber = 32512.0F;  // two signed digits: 127 * 256
#if defined(TANDEM_NEON) && defined(__ARM_FEATURE_DOTPROD)
constexpr float kMaxWeightNumber = kMaxQueryNumber;  // its digits have a sign
#else
constexpr float kMaxWeightNumber = 32767.0F;
#endif

// The queries of a head: q is numbers * scale.
template <>
struct HeadQueries<Int8Kv> {
  const std::byte* quads = nullptr;  // [d / 4][query], stride queries from a step to the next
  int64_t stride = 0;
  const int8_t* digits = nullptr;    // [query]{high [head_dim], low [head_dim]}, for AMX and I8MM
  const float* scales = nullptr;     // [query]
  const int32_t* offsets = nullptr;  // [query]: what the offset of the keys' codes adds to a product

  TANDEM_SIMD_INLINE HeadQueries From(int64_t query, int64_t head_dim) const {
    return {quads + query * kQuadBytes, stride, digits + query * 2 * head_dim, scales + query,
            offsets + query};
  }
  TANDEM_SIMD_INLINE HeadQueries Head(int64_t head, int64_t num_queries, int64_t head_dim) const {
    HeadQueries at = From(head * num_queries, head_dim);
    at.quads = quads + head * num_queries * head_dim / 4 * kQuadBytes;
    return at;
  }
};

// Lanes whose numbers differ in bit kDistance change places.
template <int kDistance, int... kLane>
TANDEM_SIMD_INLINE F32V SwapLanes(F32V v, std::integer_sequence<int, kLane...> /*lanes*/) {
  return __builtin_shufflevector(v, v, (kLane ^ kDistance)...);
}
template <int kDistance>
TANDEM_SIMD_INLINE void RotateWithinVectors(float* x, int64_t head_dim) {
  float signs[kLanes];
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanes; ++lane) signs[lane] = (lane & kDistance) != 0 ? -1.0F : 1.0F;
  const F32V sign = Load(signs);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const F32V v = Load(x + d);
    Store(x + d, Fma(v, sign, SwapLanes<kDistance>(v, std::make_integer_sequence<int, kLanes>())));
  }
}

// RotateHead of kv_codes.h. head_dim is a multiple of 16, and so at least as many channels are rotated
// together.
inline void RotateQuery(float* x, int64_t head_dim) {
  const int64_t size = head_dim & -head_dim;
  RotateWithinVectors<1>(x, head_dim);
  RotateWithinVectors<2>(x, head_dim);
  if constexpr (kLanes >= 8) RotateWithinVectors<4>(x, head_dim);
  if constexpr (kLanes >= 16) RotateWithinVectors<8>(x, head_dim);
  for (int64_t distance = kLanes; distance < size; distance *= 2) {
    for (int64_t first = 0; first < head_dim; first += 2 * distance) {
      for (int64_t d = first; d < first + distance; d += kLanes) {
        const F32V a = Load(x + d);
        const F32V b = Load(x + d + distance);
        Store(x + d, Add(a, b));
        Store(x + d + distance, Sub(a, b));
      }
    }
  }
  const F32V factor = Set(1.0F / __builtin_sqrtf(static_cast<float>(size)));
  for (int64_t d = 0; d < head_dim; d += kLanes) Store(x + d, Mul(Load(x + d), factor));
}

// x: a query, changed. quads: of the query's first step, stride bytes to its next. digits: of the query.
inline void QuantizeQuery(float* x, int64_t head_dim, std::byte* quads, int64_t stride_bytes, int8_t* digits,
                          float* scale, int32_t* offset) {
  RotateQuery(x, head_dim);
  F32V largest = Zero();
  for (int64_t d = 0; d < head_dim; d += kLanes)
    largest = Max(largest, Max(Load(x + d), Sub(Zero(), Load(x + d))));
  const float top = MaxLane(largest);
  *scale = top / kMaxQueryNumber;
  const F32V factor = Set(top > 0.0F ? kMaxQueryNumber / top : 0.0F);
  I32V sum = SetInt(0);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const I32V numbers = ToInts(Mul(Load(x + d), factor));
    sum = AddInts(sum, numbers);
#if defined(TANDEM_NEON_MATRIX)
    StoreDigits(numbers, digits + d, digits + head_dim + d);
#else
    std::byte row[kLanes / 4 * kQuadBytes];
    StoreSignedQuads(row, numbers);
#pragma GCC unroll 4
    for (int64_t step = 0; step < kLanes / 4; ++step) {
      std::memcpy(quads, row + step * kQuadBytes, kQuadBytes);
      quads += stride_bytes;
    }
#endif
#if defined(__AMX_INT8__)
    __m128i high;
    __m128i low;
    SignedDigits(numbers, &high, &low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(digits + d), high);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(digits + head_dim + d), low);
#endif
  }
  static_cast<void>(digits);
  static_cast<void>(quads);
  static_cast<void>(stride_bytes);
  *offset = SumIntLanes(sum) * kLoadedKeyOffset;
}

// Floats of scratch that PrepareInt8Queries takes.
TANDEM_SIMD_INLINE int64_t Int8QueryScratch(int64_t num_queries, int64_t head_dim) {
  return num_queries * (2 * head_dim + 2);
}

// q: [head][query][head_dim], num_queries in all, group of them a head; changed. They lie at the start of
// scratch, which is Int8QueryScratch floats.
inline HeadQueries<Int8Kv> PrepareInt8Queries(float* scratch, int64_t num_queries, int64_t group,
                                              int64_t head_dim) {
  float* scales = scratch + num_queries * head_dim;
  auto* offsets = reinterpret_cast<int32_t*>(scales + num_queries);
  auto* quads = reinterpret_cast<std::byte*>(offsets + num_queries);
  auto* digits = reinterpret_cast<int8_t*>(quads + num_queries * 2 * head_dim);
  for (int64_t i = 0; i < num_queries; ++i) {
    const int64_t head = i / group;
    std::byte* to = quads + (head * group * (head_dim / 4) + i - head * group) * kQuadBytes;
    QuantizeQuery(scratch + i * head_dim, head_dim, to, group * kQuadBytes, digits + i * 2 * head_dim,
                  scales + i, offsets + i);
  }
  return {quads, group, digits, scales, offsets};
}

// The score of kLanes tokens: sum is the product of codes and numbers.
TANDEM_SIMD_INLINE F32V ScoreOf(I32V sum, float query_scale, const uint16_t* key_scales) {
  return Mul(ToFloats(sum), Mul(Set(query_scale), LoadBf16(key_scales)));
}

// Where the scale of a query's weights lies in its row of the scores, behind the weights themselves.
constexpr int64_t kWeightScaleAt = 24;

// Numbers of the weights of tokens [t, t + kLanes) in their row.
TANDEM_SIMD_INLINE void StoreWeightNumbers(std::byte* row, int64_t t, I32V numbers) {
#if defined(TANDEM_NEON_MATRIX)
  auto* digits = reinterpret_cast<int8_t*>(row);
  StoreDigits(numbers, digits + t, digits + kMaxTileTokens + t);
#else
  StoreUnsignedQuads(row + t / 4 * kQuadBytes, numbers);
#endif
}

// acc = acc * alpha + sum * scale.
TANDEM_SIMD_INLINE void AddToAcc(float* acc, float alpha, I32V sum, float scale) {
  Store(acc, Fma(ToFloats(sum), Set(scale), Mul(Load(acc), Set(alpha))));
}

}  // namespace
}  // namespace tandem
