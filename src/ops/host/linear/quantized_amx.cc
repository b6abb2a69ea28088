// Products of bf16 rows with quantized weights on AMX tiles. Codes become bf16 exactly and are multiplied as
// they are; a tile of sums leaves for the scales after every group.
#include "ops/host/linear/quantized_microkernel.h"
#include "simd/amx_tiles.h"

namespace tandem {
namespace {

constexpr int64_t kTileColumns = 16;
// Codes of so many k lie in the L1 cache as bf16 while all rows use them.
constexpr int64_t kSlabDepth = 256;
constexpr int64_t kMaxSegments = kSlabDepth / 16;

// bf16 of 0 .. 15, twice: a lookup takes five bits of an index.
alignas(64) constexpr uint16_t kSmallNumbers[32] = {
    0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120,
    0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
    0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};

// Codes 2 i and 2 i + 1 of a word as a pair of bf16, exactly.
template <int kBits>
TANDEM_SIMD_INLINE __m512i CodePairAt(__m512i words, int i, __m512i small_numbers) {
  if constexpr (kBits == 4) {
    return _mm512_permutexvar_epi16(_mm512_srli_epi32(words, static_cast<unsigned>(4 * i)), small_numbers);
  } else {
    const __m512i byte = _mm512_set1_epi32(255);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(words, static_cast<unsigned>(8 * i)), byte);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(words, static_cast<unsigned>(16 + 8 * i)), byte);
    const __m512i even_bits = _mm512_castps_si512(_mm512_cvtepi32_ps(even));
    const __m512i odd_bits = _mm512_castps_si512(_mm512_cvtepi32_ps(odd));
    return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(even_bits, 16), odd_bits);
  }
}

// Tiles: 0, 1 sums, 2, 3 rows of x, 4, 5 codes. step: k of a tile, 32 or 16.
inline void ConfigureTiles(int64_t num_rows, int64_t step) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) {
    config.row_bytes[tile] = static_cast<uint16_t>(tile == 2 || tile == 3 ? 2 * step : 64);
    config.rows[tile] = static_cast<uint8_t>(tile < 4 ? num_rows : step / 2);
  }
  LoadTileConfig(config);
}

// A group, or a part of one that is longer than a slab.
struct Segment {
  const std::byte* words = nullptr;  // of the group
  int64_t index = 0;                 // of the group
  int64_t first = 0;                 // k of the segment within the group
  int64_t depth = 0;
  int64_t in_slab = 0;  // k of the segment within the slab
};

struct Slab {
  Segment segments[kMaxSegments];
  int64_t num_segments = 0;
  int64_t begin = 0;  // k of the weight
  int64_t end = 0;
  alignas(64) uint16_t codes[kSlabDepth * kPanelColumns];  // bf16 [k / 2][64][2]
};

// The segments from begin on.
inline void CutSlab(const QuantizedLayout& layout, const std::byte* panel, int64_t begin, Slab* slab) {
  slab->begin = begin;
  slab->end = begin;
  slab->num_segments = 0;
  const int64_t in_features = layout.num_groups * layout.group_size;
  while (slab->end < in_features && slab->num_segments < kMaxSegments) {
    Segment segment;
    segment.index = slab->end / layout.group_size;
    segment.first = slab->end - segment.index * layout.group_size;
    segment.depth = layout.group_size - segment.first;
    segment.in_slab = slab->end - begin;
    if (segment.depth > kSlabDepth) segment.depth = kSlabDepth;
    if (segment.in_slab + segment.depth > kSlabDepth) break;
    segment.words = panel + layout.groups_offset + segment.index * layout.group_bytes + layout.words_offset;
    slab->segments[slab->num_segments++] = segment;
    slab->end += segment.depth;
  }
}

template <int kBits>
void UnpackSlab(int64_t first_column, int64_t end_column, Slab* slab) {
  const __m512i small_numbers = _mm512_load_si512(kSmallNumbers);
  for (int64_t s = 0; s < slab->num_segments; ++s) {
    const Segment& segment = slab->segments[s];
    const auto* words = reinterpret_cast<const uint16_t*>(segment.words) +
                        segment.first / kCodesPerWord<kBits> * kPairsPerPanelRow;
    uint16_t* to = slab->codes + segment.in_slab * kPanelColumns;
    for (int64_t left = segment.depth; left > 0; left -= kCodesPerWord<kBits>) {
      for (int64_t column = first_column; column < end_column; column += kLanes) {
        _mm_prefetch(reinterpret_cast<const char*>(words + 2 * column) + 8192, _MM_HINT_T1);
        const __m512i codes = LoadPairs(words + 2 * column);
#pragma GCC unroll 4
        for (int i = 0; i < kCodesPerWord<kBits> / 2; ++i) {
          StorePairs(to + i * kPairsPerPanelRow + 2 * column, CodePairAt<kBits>(codes, i, small_numbers));
        }
      }
      words += kPairsPerPanelRow;
      to += kCodesPerWord<kBits> * kPanelColumns;
    }
  }
}

// 16 columns of a slab and up to 16 rows.
struct TilePass {
  const uint16_t* x = nullptr;  // the first row, at the slab's first k
  int64_t x_bytes = 0;          // from a row to the next
  const float* group_sums = nullptr;
  const std::byte* panel = nullptr;
  const float* factors = nullptr;  // of the panel
  int64_t column = 0;              // of the panel
  int64_t step = 0;
};

// sums [16][16] = x times the codes of a segment. Two sets of tiles, so that two products overlap.
template <int kSet>
TANDEM_SIMD_INLINE void MultiplySegment(const Slab& slab, const Segment& segment, const TilePass& pass,
                                        float* sums) {
  const uint16_t* x = pass.x + segment.in_slab;
  const uint16_t* codes = slab.codes + segment.in_slab * kPanelColumns + 2 * pass.column;
  constexpr int64_t kCodeStride = kPairsPerPanelRow * 2;
  if constexpr (kSet == 0) {
    _tile_zero(0);
  } else {
    _tile_zero(1);
  }
  for (int64_t k = 0; k < segment.depth; k += pass.step) {
    if constexpr (kSet == 0) {
      _tile_loadd(2, x + k, pass.x_bytes);
      _tile_loadd(4, codes + k * kPanelColumns, kCodeStride);
      _tile_dpbf16ps(0, 2, 4);
    } else {
      _tile_loadd(3, x + k, pass.x_bytes);
      _tile_loadd(5, codes + k * kPanelColumns, kCodeStride);
      _tile_dpbf16ps(1, 3, 5);
    }
  }
  if constexpr (kSet == 0) {
    _tile_stored(0, sums, kTileColumns * 4);
  } else {
    _tile_stored(1, sums, kTileColumns * 4);
  }
}

template <int kRows>
TANDEM_SIMD_INLINE void AddScaled(const QuantizedLayout& layout, const Segment& segment, const TilePass& pass,
                                  const float* sums, F32V (&acc)[kRows]) {
  const auto scales = LoadScales<1>(layout, pass.panel, segment.index, pass.factors, pass.column);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = Fma(Load(sums + r * kTileColumns), scales.value[0], acc[r]);
  if (segment.first != 0) return;
  const auto minimums = LoadMinimums<1>(layout, pass.panel, segment.index, pass.factors, pass.column, scales);
  const float* group_sums = pass.group_sums + segment.index;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
    acc[r] = Fma(Set(group_sums[r * layout.num_groups]), minimums.value[0], acc[r]);
}

struct TileSums {
  alignas(64) float of_set[2][kTileRows * kTileColumns] = {};
};

// partial: [kRows][64], the sums of the slabs before.
template <int kRows>
void MultiplySlab(const QuantizedLayout& layout, const Slab& slab, const TilePass& pass, TileSums* sums,
                  float* partial) {
  F32V acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
    acc[r] = slab.begin == 0 ? Zero() : Load(partial + r * kPanelColumns + pass.column);
  int64_t s = 0;
  for (; s + 2 <= slab.num_segments; s += 2) {
    MultiplySegment<0>(slab, slab.segments[s], pass, sums->of_set[0]);
    MultiplySegment<1>(slab, slab.segments[s + 1], pass, sums->of_set[1]);
    AddScaled<kRows>(layout, slab.segments[s], pass, sums->of_set[0], acc);
    AddScaled<kRows>(layout, slab.segments[s + 1], pass, sums->of_set[1], acc);
  }
  if (s < slab.num_segments) {
    MultiplySegment<0>(slab, slab.segments[s], pass, sums->of_set[0]);
    AddScaled<kRows>(layout, slab.segments[s], pass, sums->of_set[0], acc);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) Store(partial + r * kPanelColumns + pass.column, acc[r]);
}

template <typename Y>
void RunTiles(const QuantizedTile& tile) {
  const QuantizedLayout& layout = tile.layout;
  const int64_t in_features = layout.num_groups * layout.group_size;
  alignas(64) float partial[kMaxTileRows * kPanelColumns];
  Slab slab;
  TileSums tile_sums;
  TilePass pass;
  pass.x_bytes = tile.x_stride * 2;
  pass.step = layout.group_size % 32 == 0 ? 32 : 16;
  int64_t configured_rows = 0;
  for (int64_t unit = tile.first_unit; unit < tile.end_unit;) {
    const int64_t panel = unit / kUnitsPerPanel;
    const int64_t first_column = unit % kUnitsPerPanel * kColumnsPerUnit;
    const int64_t panel_end = (panel + 1) * kUnitsPerPanel;
    const int64_t end_unit = tile.end_unit < panel_end ? tile.end_unit : panel_end;
    const int64_t end_column = (end_unit - panel * kUnitsPerPanel) * kColumnsPerUnit;
    unit = end_unit;
    pass.panel = tile.panels + panel * layout.panel_bytes;
    pass.factors = tile.factors + panel * kPanelColumns;
    for (int64_t k = 0; k < in_features; k = slab.end) {
      CutSlab(layout, pass.panel, k, &slab);
      if (layout.bits == 4) {
        UnpackSlab<4>(first_column, end_column, &slab);
      } else {
        UnpackSlab<8>(first_column, end_column, &slab);
      }
      for (int64_t row = 0; row < tile.num_rows; row += kTileRows) {
        const int64_t rows = tile.num_rows - row < kTileRows ? tile.num_rows - row : kTileRows;
        if (rows != configured_rows) ConfigureTiles(rows, pass.step);
        configured_rows = rows;
        pass.x = static_cast<const uint16_t*>(tile.x) + row * tile.x_stride + k;
        pass.group_sums = tile.group_sums + row * layout.num_groups;
        for (pass.column = first_column; pass.column < end_column; pass.column += kTileColumns) {
          float* sums = partial + row * kPanelColumns;
          if (rows <= 4) {
            MultiplySlab<4>(layout, slab, pass, &tile_sums, sums);
          } else if (rows <= 8) {
            MultiplySlab<8>(layout, slab, pass, &tile_sums, sums);
          } else {
            MultiplySlab<16>(layout, slab, pass, &tile_sums, sums);
          }
        }
      }
    }
    for (int64_t row = 0; row < tile.num_rows; ++row) {
      for (int64_t column = first_column; column < end_column; column += kLanes) {
        const int64_t y_column = panel * kPanelColumns + column;
        FinishVector<Y>(tile, row, y_column, Load(partial + row * kPanelColumns + column));
      }
    }
  }
  _tile_release();
}

// num_groups groups of group_size (a multiple of 16) values.
inline void SumGroups(const uint16_t* row, int64_t group_size, int64_t num_groups, float* sums) {
  for (int64_t g = 0; g < num_groups; ++g) {
    F32V sum = Zero();
    for (int64_t k = 0; k < group_size; k += kLanes) sum = Add(sum, LoadBf16(row + k));
    sums[g] = SumLanes(sum);
    row += group_size;
  }
}

}  // namespace

const QuantizedKernels& QuantizedKernelsAmx() {
  static const QuantizedKernels kernels = [] {
    QuantizedKernels result = QuantizedKernelsAvx512Bf16();
    result.bf16_to_f32 = RunTiles<float>;
    result.bf16_to_bf16 = RunTiles<uint16_t>;
    result.sum_groups = SumGroups;
    result.max_rows_integers = 5;
    result.max_rows_integers_int8 = 8;
    result.max_rows_bf16 = INT64_MAX;
    return result;
  }();
  return kernels;
}

}  // namespace tandem
