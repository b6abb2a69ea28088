// The order of the rows of a gate-up weight in GPU memory, which is that of the columns of its product.
#pragma once

#include <cstdint>

namespace tandem {

// Blocks of 8 gate rows alternate with the blocks of the 8 up rows that belong to them: g0..g7 u0..u7 g8..g15
// u8..u15 ... 8 is the width of a block of columns in a tensor core's result, so that a thread of the fused
// product holds gate and up of the same elements, and 16 bytes of a 16-bit type in the unfused one's.
constexpr int64_t kGateUpBlock = 8;

// "Logical" rows are those of LinearWeight: gate rows [0, mlp), up rows [mlp, 2 mlp). An mlp that is no
// multiple of 8 keeps them in this order: one block each.
class GateUpOrder {
 public:
  // mlp: half of the rows.
  explicit constexpr GateUpOrder(int64_t mlp)
      : mlp_(mlp), block_(mlp % kGateUpBlock == 0 ? kGateUpBlock : mlp) {}

  // Rows that stay together.
  constexpr int64_t block() const { return block_; }
  // Where a logical row lies.
  constexpr int64_t PlaceOf(int64_t logical_row) const {
    const bool is_up = logical_row >= mlp_;
    const int64_t j = is_up ? logical_row - mlp_ : logical_row;
    return j + j / block_ * block_ + (is_up ? block_ : 0);
  }
  // The logical row that lies at a place.
  constexpr int64_t LogicalRow(int64_t place) const {
    const int64_t number = place / block_;
    return place - (number + 1) / 2 * block_ + (number % 2 == 1 ? mlp_ : 0);
  }

 private:
  int64_t mlp_;
  int64_t block_;
};

}  // namespace tandem
