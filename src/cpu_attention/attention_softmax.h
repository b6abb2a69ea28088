// From scores to weights, and what the steps over a tile share. Compiled once an instruction set (see
// simd.h).
#pragma once

#include "simd/fetch_level.h"
#include "simd/multiply_add.h"
#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kMaxTileTokens = 32;

struct TileRange {  // tokens [begin, end) of a tile
  int64_t begin = 0;
  int64_t end = 0;
};

// Stands for a cache of KvFormat::Int8(). Its kernels are in attention_int8.h.
enum class Int8Kv : uint8_t {};
// Of KvFormat::Fp8(), whose tiles become fp32 (attention_fp8.h).
enum class Fp8Kv : uint8_t {};

// T: element type of the cache (float, uint16_t for bf16, Fp16, Int8Kv). Queries and weights meet it as
// Operand<T>, kStepDepth<T> values of d (K) or tokens (V) a step: bf16 where the processor multiplies it,
// else fp32.
template <typename T>
struct OperandOf {
  using Type = float;
};
#if defined(TANDEM_SIMD_BF16)
template <>
struct OperandOf<uint16_t> {
  using Type = uint16_t;
};
#endif
template <typename T>
using Operand = typename OperandOf<T>::Type;
constexpr int64_t StepDepth(const float* /*type*/) {
  return 1;
}
constexpr int64_t StepDepth(const Fp16* /*type*/) {
  return 1;
}
constexpr int64_t StepDepth(const uint16_t* /*type*/) {
  return 2;
}
template <typename T>
constexpr int64_t kStepDepth = StepDepth(static_cast<const T*>(nullptr));
// Values of d of a query that lie together: NEON's products of matrices take four of bf16.
template <typename T>
constexpr int64_t kQueryDepth = kStepDepth<T>;
#if defined(TANDEM_NEON_MATRIX)
template <>
constexpr int64_t kQueryDepth<uint16_t> = 4;
#endif
// Operands from one query's weights to the next: they lie where the scores were.
template <typename T>
constexpr int64_t kWeightStride = kMaxTileTokens* static_cast<int64_t>(sizeof(float) / sizeof(Operand<T>));

// The queries of a head as the score kernels read them: [d / kQueryDepth][query], a step's values of d
// together, so that one pointer serves all queries.
template <typename T>
struct QuerySteps {
  const Operand<T>* data = nullptr;  // at the first query that is meant
  int64_t stride = 0;                // operands from a step to the next
};

// Fetches while a tile is computed: half of the lines during its scores, the others during softmax and
// values. They are spread over the computation, since a burst of them would fill the buffers for outstanding
// misses and stall the loads, and a pause would leave the memory idle. The level is known to the compiler: a
// branch at every line costs up to 5 % of the rate.
template <FetchLevel kLevel>
class Fetcher {
 public:
  Fetcher() = default;
  // num_lines from `first` on, then as many from `second` on, stride_bytes from one to the next.
  TANDEM_SIMD_INLINE Fetcher(const std::byte* first, const std::byte* second, int64_t num_lines,
                             int64_t stride_bytes)
      : next_(reinterpret_cast<uintptr_t>(first)),
        half_lines_(num_lines),
        stride_(static_cast<uintptr_t>(stride_bytes)),
        end_(next_ + HalfBytes()),
        second_(reinterpret_cast<uintptr_t>(second)) {}

  // Lines of each half; 0: there is nothing to fetch.
  TANDEM_SIMD_INLINE int64_t half_lines() const { return half_lines_; }
  TANDEM_SIMD_INLINE void Fetch(int64_t num_lines) {
    for (int64_t i = 0; i < num_lines && next_ < end_; ++i, next_ += stride_) {
      FetchLine<kLevel>(reinterpret_cast<const void*>(next_));
    }
  }
  // What is left of the half.
  TANDEM_SIMD_INLINE void FetchRest() { Fetch(half_lines_); }
  // From the first half, all fetched, to the second.
  TANDEM_SIMD_INLINE void Turn() {
    next_ = second_;
    end_ = second_ + HalfBytes();
  }

 private:
  TANDEM_SIMD_INLINE uintptr_t HalfBytes() const { return static_cast<uintptr_t>(half_lines_) * stride_; }

  uintptr_t next_ = 0;
  int64_t half_lines_ = 0;
  uintptr_t stride_ = 64;
  uintptr_t end_ = 0;
  uintptr_t second_ = 0;
};

// Stores a vector of weights as operands of the product with V and returns what was stored.
TANDEM_SIMD_INLINE F32V StoreWeights(float* to, F32V p) {
  Store(to, p);
  return p;
}
#if defined(TANDEM_SIMD_BF16)
TANDEM_SIMD_INLINE F32V StoreWeights(uint16_t* to, F32V p) {
  return StoreNativeBf16(to, p);
}
#endif

// 2^x for x <= 0; 2^-126 below. Relative error 1e-7 in fp32, 3e-6 where weights are rounded to 16 bits
// anyway.
TANDEM_SIMD_INLINE F32V Exp2(F32V x, const float* /*cache type*/) {
  x = Max(x, Set(-126.0F));
  const F32V n = Round(x);
  const F32V f = Sub(x, n);
  F32V p = Set(0.000153458124F);
  p = Fma(p, f, Set(0.00133999309F));
  p = Fma(p, f, Set(0.00961848907F));
  p = Fma(p, f, Set(0.0555032864F));
  p = Fma(p, f, Set(0.240226462F));
  p = Fma(p, f, Set(0.693147182F));
  p = Fma(p, f, Set(1.0F));
  return Scale(p, n);
}
template <typename T>
TANDEM_SIMD_INLINE F32V Exp2(F32V x, const T* /*cache type*/) {
  x = Max(x, Set(-126.0F));
  const F32V n = Round(x);
  const F32V f = Sub(x, n);
  F32V p = Set(0.00957010221F);
  p = Fma(p, f, Set(0.0559178591F));
  p = Fma(p, f, Set(0.240247443F));
  p = Fma(p, f, Set(0.693121791F));
  p = Fma(p, f, Set(0.999999285F));
  return Scale(p, n);
}

// Weights of all tokens of a tile from their exponents x(t). Returns the sum of what was stored, one a lane.
template <typename T, int64_t kTileTokens, typename Exponent>
TANDEM_SIMD_INLINE F32V StoreTileWeights(Operand<T>* weights, const Exponent& exponent) {
#if defined(__AVX512BF16__) && !defined(TANDEM_VECTORS_OF_256_BITS)
  if constexpr (sizeof(Operand<T>) == 2 && kTileTokens == 2 * kLanes) {
    // One store for the row: AMX loads it as one.
    const F32V low = Exp2(exponent(0), weights);
    const F32V high = Exp2(exponent(kLanes), weights);
    const auto pairs = (PairV)_mm512_cvtne2ps_pbh(high, low);  // NOLINT(google-readability-casting)
    StorePairs(weights, pairs);
    return Add(LowHalves(pairs), HighHalves(pairs));
  }
#endif
  F32V total = Zero();
#pragma GCC unroll 8
  for (int64_t t = 0; t < kTileTokens; t += kLanes) {
    total = Add(total, StoreWeights(weights + t, Exp2(exponent(t), static_cast<const T*>(nullptr))));
  }
  return total;
}

// Running maxima and scores are in units of ln 2: scale is the attention's times log2 e.
//
// Scores become weights (in place: Operand<T>[kMaxTileTokens] at the start of each query's scores), and max,
// sums and alpha of the queries advance. The sums, one a lane, are those of the rounded weights: they divide
// what these multiplied. alpha: room for num_queries rounded up to whole vectors. Fetches num_lines
// meanwhile.
template <typename T, int64_t kTileTokens, typename Fetcher>
[[gnu::noinline]] void Softmax(float* scores, int64_t num_queries, float scale, TileRange range, float* max,
                               float* sum_lanes, float* alpha, int64_t num_lines, Fetcher* fetcher) {
  constexpr float kNegativeInfinity = -__builtin_inff();
  bool any_new_max = false;
  for (int64_t i = 0; i < num_queries; ++i) {
    float* row = scores + i * kMaxTileTokens;
    // Also what may be garbage: keys that were never written.
    for (int64_t t = 0; t < range.begin; ++t) row[t] = kNegativeInfinity;
    for (int64_t t = range.end; t < kTileTokens; ++t) row[t] = kNegativeInfinity;
    F32V top = Load(row);
#pragma GCC unroll 8
    for (int64_t t = kLanes; t < kTileTokens; t += kLanes) top = Max(Load(row + t), top);
    top = Mul(top, Set(scale));
    alpha[i] = 0.0F;
    // Seldom after the first tiles: spares the others a reduction across lanes.
    if (AnyGreater(top, Set(max[i]))) {
      const float new_max = MaxLane(top);
      alpha[i] = max[i] - new_max;
      max[i] = new_max;
      any_new_max = true;
    }
  }
  if (any_new_max) {
    // One exponential for all queries: alone, each would cost as much as a vector of them.
    for (int64_t i = num_queries; i % kLanes != 0; ++i) alpha[i] = 0.0F;
    for (int64_t i = 0; i < num_queries; i += kLanes)
      Store(alpha + i, Exp2(Load(alpha + i), static_cast<const float*>(nullptr)));
  } else {
    for (int64_t i = 0; i < num_queries; ++i) alpha[i] = 1.0F;
  }
  const int64_t lines_each = (num_lines + num_queries - 1) / num_queries;
  for (int64_t i = 0; i < num_queries; ++i) {
    fetcher->Fetch(lines_each);
    const float* row = scores + i * kMaxTileTokens;
    auto* weights = reinterpret_cast<Operand<T>*>(scores + i * kMaxTileTokens);
    const F32V minus_max = Set(-max[i]);
    const auto exponent = [&](int64_t t) __attribute__((always_inline)) {
      return Fma(Load(row + t), Set(scale), minus_max);
    };
    const F32V total = StoreTileWeights<T, kTileTokens>(weights, exponent);
    Store(sum_lanes + i * kLanes, Fma(Load(sum_lanes + i * kLanes), Set(alpha[i]), total));
  }
}

}  // namespace
}  // namespace tandem
