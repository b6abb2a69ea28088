#include "load/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "load/block_fields.h"

namespace tandem {
namespace {

// Code i of an interleaved word belongs to this place, and place i has code kInterleavedCodes[i].
constexpr std::array<int, 8> kInterleavedPlaces = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr std::array<int, 8> kInterleavedCodes = {0, 4, 1, 5, 2, 6, 3, 7};

// The codes of a word, the lowest bits first.
void UnpackWord(uint32_t word, int bits, uint8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, &word, sizeof(word));
    return;
  }
  uint64_t bytes = word;
  bytes = (bytes | bytes << 16) & 0x0000ffff0000ffffU;
  bytes = (bytes | bytes << 8) & 0x00ff00ff00ff00ffU;
  bytes = (bytes | bytes << 4) & 0x0f0f0f0f0f0f0f0fU;
  std::memcpy(codes, &bytes, sizeof(bytes));
}

// Words of a tensor, and of its codes those of rows [row_begin, row_begin + num_rows).
struct WordRange {
  const uint8_t* words = nullptr;
  int64_t words_a_line = 0;
  int bits = 4;
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  int64_t cols = 0;

  uint32_t Word(int64_t line, int64_t place) const {
    return LoadU32(words + 4 * (line * words_a_line + place));
  }
  int64_t codes_a_word() const { return 32 / bits; }
};

// A word has neighbours of one row, and lines are rows.
void UnpackRows(const WordRange& range, uint8_t* codes) {
  for (int64_t i = 0; i < range.num_rows; ++i) {
    for (int64_t col = 0; col < range.cols; col += range.codes_a_word(), codes += range.codes_a_word())
      UnpackWord(range.Word(range.row_begin + i, col / range.codes_a_word()), range.bits, codes);
  }
}

// A word has neighbours of one row, and a line some columns of all rows.
void UnpackColumnWords(const WordRange& range, uint8_t* codes) {
  for (int64_t col = 0; col < range.cols; col += range.codes_a_word()) {
    for (int64_t i = 0; i < range.num_rows; ++i) {
      UnpackWord(range.Word(col / range.codes_a_word(), range.row_begin + i), range.bits,
                 codes + i * range.cols + col);
    }
  }
}

// A word has the interleaved codes of eight rows, and a line one column of all. So many columns at a time
// that the lines of memory that they are written to stay in the cache.
void UnpackInterleavedColumns(const WordRange& range, uint8_t* codes) {
  constexpr int64_t kColumnsAtATime = 64;
  constexpr int64_t kRowsAWord = 8;
  const int64_t row_end = range.row_begin + range.num_rows;
  for (int64_t begin = 0; begin < range.cols; begin += kColumnsAtATime) {
    const int64_t end = std::min(begin + kColumnsAtATime, range.cols);
    for (int64_t word = range.row_begin / kRowsAWord; word * kRowsAWord < row_end; ++word) {
      for (int64_t col = begin; col < end; ++col) {
        std::array<uint8_t, kRowsAWord> unpacked;
        UnpackWord(range.Word(col, word), range.bits, unpacked.data());
        for (size_t i = 0; i < unpacked.size(); ++i) {
          const int64_t row = word * kRowsAWord + kInterleavedPlaces[i];
          if (row < range.row_begin || row >= row_end) continue;
          codes[(row - range.row_begin) * range.cols + col] = unpacked[i];
        }
      }
    }
  }
}

// order: of the columns, as CodedWeight has it.
void ReorderColumns(const std::vector<int32_t>& order, QuantizedRows* rows) {
  std::vector<uint8_t> row(order.size());
  for (int64_t i = 0; i < rows->num_rows; ++i) {
    uint8_t* codes = rows->codes.data() + i * rows->cols;
    std::copy_n(codes, row.size(), row.begin());
    for (const int32_t from : order) *codes++ = row[static_cast<size_t>(from)];
  }
}

}  // namespace

WeightFormat PackedWeight::format() const {
  const WeightFormat symmetric =
      parts_.bits == 4 ? Int4Format(parts_.group_size, false) : Int8Format(parts_.group_size, false);
  return parts_.is_symmetric ? symmetric : WithZeroPoints(symmetric);
}

Status PackedWeight::Read(int64_t row_begin, int64_t num_rows, QuantizedRows* rows) const {
  rows->Resize(format(), num_rows, parts_.cols);
  const WordRange range = {.words = parts_.codes.data,
                           .words_a_line = parts_.codes.shape[1],
                           .bits = parts_.bits,
                           .row_begin = row_begin,
                           .num_rows = num_rows,
                           .cols = parts_.cols};
  if (!parts_.layout.lines_are_columns) {
    UnpackRows(range, rows->codes.data());
  } else if (parts_.layout.codes_across_lines) {
    UnpackColumnWords(range, rows->codes.data());
  } else {
    UnpackInterleavedColumns(range, rows->codes.data());
  }
  if (!parts_.column_order.empty()) ReorderColumns(parts_.column_order, rows);
  TANDEM_RETURN_IF_ERROR(ReadGroupScales(row_begin, rows));
  return parts_.zeros ? ReadZeroPoints(row_begin, rows) : Status();
}

Status PackedWeight::ReadGroupScales(int64_t row_begin, QuantizedRows* rows) const {
  const int64_t num_groups = rows->num_groups();
  if (!parts_.layout.lines_are_columns)
    return ReadScales(parts_.scales, row_begin * num_groups, rows->num_rows * num_groups,
                      rows->scales.data());
  std::vector<float> of_group(static_cast<size_t>(rows->num_rows));
  for (int64_t g = 0; g < num_groups; ++g) {
    TANDEM_RETURN_IF_ERROR(
        ReadScales(parts_.scales, g * parts_.rows + row_begin, rows->num_rows, of_group.data()));
    for (int64_t i = 0; i < rows->num_rows; ++i)
      rows->scales[static_cast<size_t>(i * num_groups + g)] = of_group[static_cast<size_t>(i)];
  }
  return {};
}

// Where there have to be none, whether they are 2^(bits - 1).
Status PackedWeight::ReadZeroPoints(int64_t row_begin, QuantizedRows* rows) const {
  const PackedLayout& layout = parts_.layout;
  const WordRange words = {
      .words = parts_.zeros->data, .words_a_line = parts_.zeros->shape[1], .bits = parts_.bits};
  const uint32_t mask = (1U << parts_.bits) - 1U;
  const int64_t num_groups = rows->num_groups();
  for (int64_t i = 0; i < rows->num_rows; ++i) {
    for (int64_t g = 0; g < num_groups; ++g) {
      const int64_t row = row_begin + i;
      const int64_t line = layout.lines_are_columns ? g : row;
      const int64_t place = layout.lines_are_columns ? row : g;
      const int64_t packed = layout.zeros_across_lines ? line : place;
      const auto in_word = static_cast<size_t>(packed % words.codes_a_word());
      const int code = layout.is_interleaved ? kInterleavedCodes.at(in_word) : static_cast<int>(in_word);
      const int64_t word = packed / words.codes_a_word();
      const uint32_t stored =
          (layout.zeros_across_lines ? words.Word(word, place) : words.Word(line, word)) >>
          (code * parts_.bits);
      const auto zero = static_cast<int>((stored + static_cast<uint32_t>(parts_.stored_zero_offset)) & mask);
      const auto at = static_cast<size_t>(i * num_groups + g);
      if (!parts_.is_symmetric) {
        rows->minimums[at] = rows->scales[at] * static_cast<float>(-zero);
      } else if (zero != rows->format.zero_code()) {
        return MakeError(
            ErrorCode::kMalformedFile,
            "{}: tensor '{}' has the zero point {} in group {} of row {}, the configuration says "
            "that weights are symmetric, of zero point {}",
            parts_.zeros->file, parts_.zeros->name, zero, g, row, rows->format.zero_code());
      }
    }
  }
  return {};
}

}  // namespace tandem
