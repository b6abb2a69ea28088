// Weights of FP8 (E4M3) with a scale a tensor, a row, or a block of rows and columns.
#pragma once

#include <cstdint>
#include <vector>

#include "load/coded_weight.h"
#include "load/safetensors_file.h"

namespace tandem {

// All tensors checked to have the shapes that the blocks give them.
struct Fp8Parts {
  SafetensorsTensor codes;   // F8_E4M3 [rows, cols]
  SafetensorsTensor scales;  // floats [rows / block_rows, cols / block_cols], rounded up
  int64_t block_rows = 0;
  int64_t block_cols = 0;
};

// The groups are as large as blocks and rows allow: their greatest common divisor.
class Fp8Weight final : public CodedWeight {
 public:
  explicit Fp8Weight(Fp8Parts parts) : parts_(std::move(parts)) {}

  WeightFormat format() const override;
  const std::vector<int32_t>& column_order() const override { return column_order_; }
  Status Read(int64_t row_begin, int64_t num_rows, QuantizedRows* rows) const override;

 private:
  Fp8Parts parts_;
  std::vector<int32_t> column_order_;
};

}  // namespace tandem
