// Int8 attention on AMX tiles, for tiles of 32 keys. Included where AMX is compiled for.
//
// The digits of a query's numbers and of its weights are rows of the left operand: two rows a query cost what
// two queries cost, next to nothing beside the reading. K and V are the right operand as they lie
// (kv_block.h).
//
// A *strip* is up to four tiles of keys of a head that follow each other. Its steps are taken for all of it,
// so that sums are brought from tiles to floats, maxima to lanes and results to memory once a strip, and
// products that do not wait for each other are enough to keep the unit busy.
#pragma once

#include "cpu_attention/attention_amx.h"
#include "cpu_attention/attention_int8.h"

#if defined(__AMX_INT8__)

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kInt8TileQueries = kTileRows / 2;
constexpr int64_t kInt8TileDepth = 64;  // codes of a row of the left operand
constexpr int64_t kMaxInt8TileHeadDim = 256;
constexpr int64_t kStripTiles = 4;
constexpr int64_t kStripTokens = kStripTiles * kMaxTileTokens;

// Tiles of a head in ascending order, all of which the queries see.
struct Strip {
  TileOf tiles[kStripTiles];
  int64_t num_tiles = 0;

  int64_t num_tokens() const { return num_tiles * kMaxTileTokens; }
};

// What the tiles of a strip say, one after the other; as Fetcher.
template <FetchLevel kLevel>
class StripFetcher {
 public:
  explicit StripFetcher(const Fetcher<kLevel> (&fetchers)[kStripTiles]) {
    for (int64_t i = 0; i < kStripTiles; ++i) {
      fetchers_[i] = fetchers[i];
      half_lines_ += fetchers[i].half_lines();
    }
    left_ = fetchers_[0].half_lines();
  }

  int64_t half_lines() const { return half_lines_; }
  TANDEM_SIMD_INLINE void Fetch(int64_t num_lines) {
    if (left_ <= 0 && at_ + 1 < kStripTiles) left_ = fetchers_[++at_].half_lines();
    fetchers_[at_].Fetch(num_lines);
    left_ -= num_lines;
  }
  TANDEM_SIMD_INLINE void FetchRest() {
    for (; at_ < kStripTiles; ++at_) fetchers_[at_].FetchRest();
  }
  TANDEM_SIMD_INLINE void Turn() {
    for (Fetcher<kLevel>& each : fetchers_) each.Turn();
    at_ = 0;
    left_ = fetchers_[0].half_lines();
  }

 private:
  Fetcher<kLevel> fetchers_[kStripTiles];
  int64_t half_lines_ = 0;
  int64_t at_ = 0;    // of the tile that is fetched for
  int64_t left_ = 0;  // lines of its half
};

// What the steps over a strip hand on. Of up to kInt8TileQueries queries.
struct StripBuffers {
  // [tile][query]{high [32], low [32]}
  alignas(64) int32_t score_sums[kStripTiles][kTileRows * kMaxTileTokens];
  alignas(64) float scores[kInt8TileQueries][kStripTokens];  // later weights times scales of V
  // [tile]{upper, lower}[query]{high, low}. A row is the 32 digits and zeros, since the right operand is two
  // column groups of V, one above the other: upper meets the first and nothing else, lower the second.
  alignas(64) uint8_t weights[kStripTiles][2][kTileRows * kTileBytes];
  alignas(64) int32_t value_sums[2][kTileRows * kInt8TileDepth];
  alignas(64) float value_scales[kStripTokens];
  // Of each query.
  alignas(64) float score_scales[kLanes];  // from products with codes and their scales to exponents
  alignas(64) float alphas[kLanes];
  alignas(64) float factors[kLanes];  // from weights to numbers
  alignas(64) float weight_scales[kLanes];
};

// Tiles: 0 to 3 results, 4, 5 left operands, 6, 7 right operands.
inline void ConfigureInt8Tiles(int64_t num_queries) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kTileBytes;
    config.rows[tile] = static_cast<uint8_t>(tile >= 6 ? kTileRows : 2 * num_queries);
  }
  LoadTileConfig(config);
}

// Fills score_sums. digits: of the first query. Two tiles of keys at a time; of the last, if it is alone,
// twice.
template <typename Fetcher>
TANDEM_SIMD_INLINE void StripScoreSums(const Strip& strip, const int8_t* digits, int64_t head_dim,
                                       StripBuffers* buffers, int64_t num_lines, Fetcher* fetcher) {
  constexpr int64_t kKeyStride = kMaxTileTokens * 4;  // bytes from a four of d to the next
  constexpr int64_t kSumStride = kMaxTileTokens * 4;
  constexpr int64_t kStep = kMaxTileTokens * kInt8TileDepth;
  const int64_t num_calls = DivideUp(strip.num_tiles, 2) * (head_dim / kInt8TileDepth) * 2;
  const int64_t lines_each = DivideUp(num_lines, num_calls);
  FinishStoresForTiles();
  for (int64_t t = 0; t < strip.num_tiles; t += 2) {
    const int64_t u = t + 1 < strip.num_tiles ? t + 1 : t;
    const std::byte* first = strip.tiles[t].keys;
    const std::byte* second = strip.tiles[u].keys;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t d = 0; d < head_dim; d += kInt8TileDepth, first += kStep, second += kStep) {
      _tile_loadd(4, digits + d, head_dim);
      _tile_loadd(6, first, kKeyStride);
      _tile_dpbsud(0, 4, 6);
      _tile_loadd(7, first + kTileBytes, kKeyStride);
      _tile_dpbsud(1, 4, 7);
      fetcher->Fetch(lines_each);
      _tile_loadd(6, second, kKeyStride);
      _tile_dpbsud(2, 4, 6);
      _tile_loadd(7, second + kTileBytes, kKeyStride);
      _tile_dpbsud(3, 4, 7);
      fetcher->Fetch(lines_each);
    }
    _tile_stored(0, buffers->score_sums[t], kSumStride);
    _tile_stored(1, buffers->score_sums[t] + 16, kSumStride);
    _tile_stored(2, buffers->score_sums[u], kSumStride);
    _tile_stored(3, buffers->score_sums[u] + 16, kSumStride);
  }
}

// The largest lane of each of 8 vectors, in lanes 0 to 7.
TANDEM_SIMD_INLINE F32V MaxLanes(const F32V (&v)[kInt8TileQueries]) {
  F32V pairs[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[i] = Max(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
  }
  F32V fours[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(pairs[2 * i]);
    const __m512d b = _mm512_castps_pd(pairs[2 * i + 1]);
    fours[i] = Max(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const F32V halves =
      Max(_mm512_shuffle_f32x4(fours[0], fours[1], 0x88), _mm512_shuffle_f32x4(fours[0], fours[1], 0xdd));
  const F32V all = Max(halves, _mm512_shuffle_f32x4(halves, halves, 0xb1));
  return _mm512_shuffle_f32x4(all, all, 0x08);  // of the first four in lanes 0 to 3, of the others in 8 to 11
}

// From score_sums to scores, which lack the queries' scales. Returns the largest of each query.
template <typename Fetcher>
TANDEM_SIMD_INLINE F32V StripScores(const Strip& strip, const HeadQueries<Int8Kv>& q, int64_t num_queries,
                                    int64_t head_dim, StripBuffers* buffers, int64_t num_lines,
                                    Fetcher* fetcher) {
  F32V key_scales[kStripTokens / kLanes];
  for (int64_t t = 0; t < strip.num_tiles; ++t) {
    const uint16_t* from = ScalesOf(strip.tiles[t].keys, kMaxTileTokens, head_dim);
    key_scales[2 * t] = LoadBf16(from);
    key_scales[2 * t + 1] = LoadBf16(from + kLanes);
  }
  const int64_t lines_each = DivideUp(num_lines, num_queries);
  F32V largest[kInt8TileQueries] = {Zero(), Zero(), Zero(), Zero(), Zero(), Zero(), Zero(), Zero()};
  for (int64_t i = 0; i < num_queries; ++i) {
    fetcher->Fetch(lines_each);
    const I32V offset = SetInt(q.offsets[i]);
    F32V top = Set(-__builtin_inff());
    for (int64_t t = 0; t < strip.num_tiles; ++t) {
      const int32_t* high = buffers->score_sums[t] + i * 2 * kMaxTileTokens;
#pragma GCC unroll 2
      for (int64_t half = 0; half < 2; ++half) {
        const QuadSum sum = {LoadInts(high + half * kLanes), LoadInts(high + kMaxTileTokens + half * kLanes)};
        const F32V score = Mul(ToFloats(SubInts(Total(sum), offset)), key_scales[2 * t + half]);
        Store(buffers->scores[i] + t * kMaxTileTokens + half * kLanes, score);
        top = Max(top, score);
      }
    }
    largest[i] = top;
  }
  return MaxLanes(largest);
}

// Advances the running maxima, and fills score_scales and alphas. largest: of StripScores.
TANDEM_SIMD_INLINE void AdvanceMaxima(F32V largest, const HeadQueries<Int8Kv>& q, int64_t num_queries,
                                      float scale, float* max, StripBuffers* buffers) {
  const auto queries = static_cast<__mmask16>((1U << num_queries) - 1);
  const F32V score_scales = Mul(_mm512_maskz_loadu_ps(queries, q.scales), Set(scale));
  const F32V old_max = _mm512_maskz_loadu_ps(queries, max);
  const F32V new_max = Max(old_max, Mul(largest, score_scales));
  _mm512_mask_storeu_ps(max, queries, new_max);
  Store(buffers->score_scales, score_scales);
  Store(buffers->alphas, Exp2(Sub(old_max, new_max), static_cast<const float*>(nullptr)));
}

// From scores to weights times the scales of V, in place; fills factors and weight_scales. Has V come to L1:
// what the load of a tile waits for, it waits for 16 times.
template <typename Fetcher>
TANDEM_SIMD_INLINE void StripWeights(const Strip& strip, int64_t num_queries, int64_t head_dim,
                                     const float* max, float* sum_lanes, StripBuffers* buffers,
                                     int64_t num_lines, Fetcher* fetcher) {
  for (int64_t t = 0; t < strip.num_tiles; ++t) {
    const uint16_t* from = ScalesOf(strip.tiles[t].values, kMaxTileTokens, head_dim);
    Store(buffers->value_scales + t * kMaxTileTokens, LoadBf16(from));
    Store(buffers->value_scales + t * kMaxTileTokens + kLanes, LoadBf16(from + kLanes));
  }
  const int64_t lines_each = DivideUp(num_lines, num_queries * strip.num_tiles);
  const int64_t value_bytes = kMaxTileTokens * head_dim;
  const int64_t value_bytes_each = DivideUp(value_bytes / 64, num_queries) * 64;
  F32V largest[kInt8TileQueries] = {Zero(), Zero(), Zero(), Zero(), Zero(), Zero(), Zero(), Zero()};
  for (int64_t i = 0; i < num_queries; ++i) {
    const F32V score_scale = Set(buffers->score_scales[i]);
    const F32V minus_max = Set(-max[i]);
    F32V totals[2] = {Zero(), Zero()};
    for (int64_t t = 0; t < strip.num_tiles; ++t) {
      fetcher->Fetch(lines_each);
      const int64_t end = (i + 1) * value_bytes_each < value_bytes ? (i + 1) * value_bytes_each : value_bytes;
      for (int64_t at = i * value_bytes_each; at < end; at += 64)
        FetchLine<FetchLevel::kL1>(strip.tiles[t].values + at);
#pragma GCC unroll 2
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t at = t * kMaxTileTokens + half * kLanes;
        float* score = buffers->scores[i] + at;
        const F32V p = Exp2(Fma(Load(score), score_scale, minus_max), static_cast<const Int8Kv*>(nullptr));
        totals[half] = Add(totals[half], p);
        const F32V weight = Mul(p, Load(buffers->value_scales + at));
        Store(score, weight);
        largest[i] = Max(largest[i], weight);
      }
    }
    float* sums = sum_lanes + i * kLanes;
    Store(sums, Fma(Load(sums), Set(buffers->alphas[i]), Add(totals[0], totals[1])));
  }
  const F32V top = MaxLanes(largest);
  Store(buffers->factors, KeepIfNotLess(top, Set(1e-36F), Div(Set(kMaxWeightNumber), top)));
  Store(buffers->weight_scales, Div(top, Set(kMaxWeightNumber)));
}

// From those to digits.
template <typename Fetcher>
TANDEM_SIMD_INLINE void StripWeightDigits(const Strip& strip, int64_t num_queries, StripBuffers* buffers,
                                          int64_t num_lines, Fetcher* fetcher) {
  // From [16 tokens of four]{high, high of the other half, low, low of the other half}.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const int64_t lines_each = DivideUp(num_lines, num_queries);
  for (int64_t i = 0; i < num_queries; ++i) {
    fetcher->Fetch(lines_each);
    const F32V factor = Set(buffers->factors[i]);
    for (int64_t t = 0; t < strip.num_tiles; ++t) {
      const float* from = buffers->scores[i] + t * kMaxTileTokens;
      const __m512i words =
          _mm512_packus_epi32(ToInts(Mul(Load(from), factor)), ToInts(Mul(Load(from + kLanes), factor)));
      const __m512i digits = _mm512_permutexvar_epi32(
          order,
          _mm512_packus_epi16(_mm512_srli_epi16(words, 8), _mm512_and_si512(words, _mm512_set1_epi16(0xff))));
      // A row in one store: the tile's load then need not wait for the cache.
      uint8_t* upper = buffers->weights[t][0] + i * 2 * kTileBytes;
      uint8_t* lower = buffers->weights[t][1] + i * 2 * kTileBytes;
      const __m512i swapped = _mm512_shuffle_i64x2(digits, digits, 0x4e);
      _mm512_store_si512(upper, _mm512_maskz_mov_epi64(0x0f, digits));
      _mm512_store_si512(upper + kTileBytes, _mm512_maskz_mov_epi64(0x0f, swapped));
      _mm512_store_si512(lower, _mm512_maskz_mov_epi64(0xf0, swapped));
      _mm512_store_si512(lower + kTileBytes, _mm512_maskz_mov_epi64(0xf0, digits));
    }
  }
}

// acc = acc * alpha + weights V.
template <typename Fetcher>
TANDEM_SIMD_INLINE void StripValues(const Strip& strip, int64_t num_queries, int64_t head_dim, float* acc,
                                    StripBuffers* buffers, int64_t num_lines, Fetcher* fetcher) {
  constexpr int64_t kColumns = 4 * kValueColumns;  // of a turn
  constexpr int64_t kGroupBytes = kMaxTileTokens * kValueColumns;
  const int64_t lines_each = DivideUp(num_lines, head_dim / kColumns * strip.num_tiles);
  FinishStoresForTiles();
  const auto add = [&](int64_t d) __attribute__((always_inline)) {
    const int32_t* from = buffers->value_sums[d / kColumns % 2];
    for (int64_t i = 0; i < num_queries; ++i) {
      const F32V scale = Set(buffers->weight_scales[i]);
      const F32V alpha = Set(buffers->alphas[i]);
#pragma GCC unroll 4
      for (int64_t column = 0; column < kColumns; column += kLanes) {
        const QuadSum sum = {LoadInts(from + i * 2 * kColumns + column),
                             LoadInts(from + (i * 2 + 1) * kColumns + column)};
        float* to = acc + i * head_dim + d + column;
        Store(to, Fma(ToFloats(Total(sum)), scale, Mul(Load(to), alpha)));
      }
    }
  };
  for (int64_t d = 0; d < head_dim; d += kColumns) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t t = 0; t < strip.num_tiles; ++t) {
      const std::byte* values = strip.tiles[t].values + d / kValueColumns * kGroupBytes;
      _tile_loadd(4, buffers->weights[t][0], kTileBytes);
      _tile_loadd(6, values, kTileBytes);
      _tile_dpbusd(0, 4, 6);
      _tile_loadd(5, buffers->weights[t][1], kTileBytes);
      _tile_dpbusd(1, 5, 6);
      _tile_loadd(7, values + 2 * kGroupBytes, kTileBytes);
      _tile_dpbusd(2, 4, 7);
      _tile_dpbusd(3, 5, 7);
      fetcher->Fetch(lines_each);
    }
    int32_t* to = buffers->value_sums[d / kColumns % 2];
    _tile_stored(0, to, kColumns * 4);
    _tile_stored(1, to + kValueColumns, kColumns * 4);
    _tile_stored(2, to + 2 * kValueColumns, kColumns * 4);
    _tile_stored(3, to + 3 * kValueColumns, kColumns * 4);
    // One turn behind, so that nothing waits for the tiles.
    if (d > 0) add(d - kColumns);
  }
  add(head_dim - kColumns);
}

// A strip for up to kInt8TileQueries queries, for which tiles are configured. scale: of the scores, times
// log2 e. work, q: at the first query.
template <typename Fetcher>
[[gnu::noinline]] void Int8Strip(const Workspace& work, const HeadQueries<Int8Kv>& q, int64_t num_queries,
                                 int64_t head_dim, float scale, const Strip& strip, StripBuffers* buffers,
                                 Fetcher fetcher) {
  const int64_t half_lines = fetcher.half_lines();
  StripScoreSums(strip, q.digits, head_dim, buffers, half_lines * 3 / 10, &fetcher);
  const F32V largest = StripScores(strip, q, num_queries, head_dim, buffers, half_lines * 2 / 10, &fetcher);
  AdvanceMaxima(largest, q, num_queries, scale, work.max, buffers);
  StripWeights(strip, num_queries, head_dim, work.max, work.sum_lanes, buffers, half_lines / 2, &fetcher);
  fetcher.FetchRest();
  fetcher.Turn();
  StripWeightDigits(strip, num_queries, buffers, half_lines / 4, &fetcher);
  StripValues(strip, num_queries, head_dim, work.acc, buffers, half_lines * 3 / 4, &fetcher);
  fetcher.FetchRest();
}

}  // namespace
}  // namespace tandem

#endif
