// Weights of integers of 4 or 8 bits, packed into 32-bit words: AWQ, GPTQ and compressed-tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "load/coded_weight.h"
#include "load/safetensors_file.h"

namespace tandem {

// Where the numbers of a weight [rows, cols] are. A tensor's lines are its first dimension.
struct PackedLayout {
  // Lines of codes are columns of the weight (in_features), and lines of scales and zero points groups of
  // them; otherwise all lines are rows.
  bool lines_are_columns = false;
  // The codes of a word belong to consecutive lines, otherwise to consecutive places of one line.
  bool codes_across_lines = false;
  bool zeros_across_lines = false;
  // The codes and zero points of a word are at its places 0, 2, 4, 6, 1, 3, 5, 7, the lowest bits first.
  bool is_interleaved = false;
};

// All tensors checked to have the shapes that the layout gives them.
struct PackedParts {
  PackedLayout layout;
  SafetensorsTensor codes;                 // I32
  SafetensorsTensor scales;                // floats
  std::optional<SafetensorsTensor> zeros;  // I32; none: 2^(bits - 1)
  int bits = 4;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t group_size = 0;      // divides cols
  bool is_symmetric = true;    // zeros, if any, are 2^(bits - 1)
  int stored_zero_offset = 0;  // a zero point is what is stored plus this, modulo 2^bits
  std::vector<int32_t> column_order;
};

// A code stands for scale * (code - zero point).
class PackedWeight final : public CodedWeight {
 public:
  explicit PackedWeight(PackedParts parts) : parts_(std::move(parts)) {}

  WeightFormat format() const override;
  const std::vector<int32_t>& column_order() const override { return parts_.column_order; }
  Status Read(int64_t row_begin, int64_t num_rows, QuantizedRows* rows) const override;

 private:
  Status ReadGroupScales(int64_t row_begin, QuantizedRows* rows) const;
  Status ReadZeroPoints(int64_t row_begin, QuantizedRows* rows) const;

  PackedParts parts_;
};

}  // namespace tandem
