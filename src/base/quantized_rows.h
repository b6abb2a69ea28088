// Rows of a quantized weight in the form that every reader hands over and every backend packs from.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/weight_format.h"

namespace tandem {

// num_rows x cols values, a multiple of format.group_size in a row. Host memory, dense, row-major.
struct QuantizedRows {
  WeightFormat format;
  int64_t num_rows = 0;
  int64_t cols = 0;
  std::vector<uint8_t> codes;  // [num_rows, cols], each below 2^bits
  std::vector<float> scales;   // [num_rows, groups]
  // [num_rows, groups] with format.has_minimum, else empty. With zero points: -scale * zero point, rounded to
  // fp32.
  std::vector<float> minimums;
  // [num_rows, blocks] with format.block_size, else empty: what the scales, and the minimums, of a block's
  // groups are multiples of (0: they are 0).
  std::vector<float> scale_units;
  std::vector<float> minimum_units;

  int64_t num_groups() const { return cols / format.group_size; }
  int64_t num_blocks() const { return format.block_size > 0 ? cols / format.block_size : 0; }
  // Takes the shape, with memory of any content. CHECKs that the groups divide a row, and blocks of them.
  void Resize(const WeightFormat& new_format, int64_t new_num_rows, int64_t new_cols);
};

// dst: [num_rows, cols]: scale * (code - zero), scale * code + minimum or, of kFp8, scale * value, rounded to
// fp32 once.
void DequantizeRows(const QuantizedRows& rows, float* dst);

// The same values in a format that holds them all (CommonWeightFormat of rows.format and another).
QuantizedRows WidenRows(const QuantizedRows& rows, const WeightFormat& format);

// The format of columns [begin, begin + count) of rows of `cols`: the same where they are whole groups (and
// blocks), one group where a group is a whole row; else they cannot be cut.
std::optional<WeightFormat> FormatOfColumns(const WeightFormat& format, int64_t cols, int64_t begin,
                                            int64_t count);
// Those columns. CHECKs that they can be cut.
QuantizedRows ColumnsOf(const QuantizedRows& rows, int64_t begin, int64_t count);

// The codes nearest to values [num_rows, cols]. With a minimum a group spans its values from the least to the
// greatest, without one its largest magnitude is the end of the codes' range. Scales and minimums of integers
// have the precision of fp16, so that packing need not round them. In blocks the groups of a block share one
// scale; for zero points the codes are those without a minimum. rows: takes format and shape.
void QuantizeRows(const float* values, int64_t num_rows, int64_t cols, const WeightFormat& format,
                  QuantizedRows* rows);

// Rows [row_begin, row_begin + num_rows) of a random weight [any, cols] in a quantized format without zero
// points and blocks: a function of seed, place and format only. Codes are uniform (but for NaN), scales have
// four significant bits (which every backend can hold), a minimum makes the mean of its group zero. The
// values' spread is about that of HashedUniform(seed, index, bound).
void HashedRows(uint64_t seed, float bound, int64_t row_begin, int64_t num_rows, int64_t cols,
                const WeightFormat& format, QuantizedRows* rows);

}  // namespace tandem
