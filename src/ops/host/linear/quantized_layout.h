// Where the codes, scales and minimums of a quantized weight lie in memory.
//
// Panels of 64 output columns as of other weights (linear_kernels.h). A panel is its groups one after the
// other, and a group is read from its first byte to its last:
//
//   scales    [64] fp16; of FP8 fp32
//   minimums  [64] fp16, only with a minimum; with zero points, -zero point: a multiple of the scale
//   words     [group_size / codes a word][64] uint32
//
// With blocks (WeightFormat::block_size) scales and minimums of groups are [64] int8, and in front of the
// first group are their units, for each block
//
//   scale units    [64] fp16
//   minimum units  [64] fp16, only with a minimum
//
// A word has 8 codes of 4 bits or 4 of 8 bits, consecutive ones of a column: the even ones in its low half,
// the odd ones in its high half, so that a shift brings two neighbours to where the two bf16 of a pair are. A
// scale, minimum or unit times the factor of its column, a power of two, is what counts: fp16 alone would not
// reach. Scales of FP8 count as they are.
#pragma once

#include <cstdint>

#include "base/weight_format.h"

namespace tandem {

// Plain numbers: kernels, which call no inline functions, read them.
struct QuantizedLayout {
  int64_t bits = 4;  // of a code: 4 or 8
  bool has_minimum = false;
  bool has_zero_points = false;
  bool is_fp8 = false;     // codes are E4M3
  int64_t group_size = 0;  // a multiple of 16
  int64_t num_groups = 0;
  int64_t groups_per_block = 0;  // 0: no blocks
  int64_t groups_offset = 0;     // bytes, from the beginning of a panel
  int64_t words_offset = 0;      // bytes, from the beginning of a group
  int64_t group_bytes = 0;
  int64_t panel_bytes = 0;
};

// Whether weights with rows of in_features can lie so.
bool HasQuantizedLayout(const WeightFormat& format, int64_t in_features);
QuantizedLayout MakeQuantizedLayout(const WeightFormat& format, int64_t in_features);
// The bit of its word at which code k of a group begins.
int CodeShift(const QuantizedLayout& layout, int64_t k);

}  // namespace tandem
