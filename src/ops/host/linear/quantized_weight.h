// A weight kept as codes, in panels that the kernels read from the first byte to the last.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "ops/host/linear/quantized_layout.h"
#include "ops/host/linear/weight_arena.h"
#include "ops/linear.h"

namespace tandem {

class HostQuantizedWeight : public QuantizedLinearWeight {
 public:
  // Errors: kUnsupported for formats and types that there is no layout or kernel for; kResourceExhausted.
  static Result<std::unique_ptr<QuantizedLinearWeight>> Create(const QuantizedWeightShape& shape,
                                                               const WeightFormat& format,
                                                               WeightArena* arena);

  int64_t out_features() const override { return shape_.out_features; }
  int64_t in_features() const override { return shape_.in_features; }
  DType dtype() const override { return shape_.dtype; }
  WeightFormat format() const override { return format_; }
  size_t size_bytes() const override {
    return static_cast<size_t>(num_panels_ * layout_.panel_bytes) + factors_.size() * sizeof(float);
  }
  void LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) override;
  void LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) override;
  void LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) override;
  void FillRandom(const RandomValues& values) override;

  // to: [in_features] fp32, the row's dequantized values, rounded to dtype() as a matrix of floats has them,
  // columns in the order of the codes.
  void DequantizeRow(int64_t row, float* to) const;

  const QuantizedLayout& layout() const { return layout_; }
  int64_t num_panels() const { return num_panels_; }
  // QuantizedWeightShape::column_order.
  std::span<const int32_t> column_order() const { return column_order_; }
  const std::byte* panels() const { return panels_.get(); }
  // As long as all panels; 1 where no row was loaded, and of FP8.
  const float* factors() const { return factors_.data(); }
  // As long as all panels; nullptr if no bias was loaded.
  const float* bias() const { return has_bias_.load(std::memory_order_relaxed) ? bias_.data() : nullptr; }

 private:
  HostQuantizedWeight(const QuantizedWeightShape& shape, const WeightFormat& format);
  void CheckRows(int64_t row_begin, int64_t num_rows) const;
  // The first byte of a group of a row's panel.
  std::byte* Group(int64_t row, int64_t group) const;
  // Of one row, as QuantizedRows has them.
  struct RowNumbers {
    std::span<const float> scales;
    std::span<const float> minimums;
    std::span<const float> scale_units;
    std::span<const float> minimum_units;
  };
  void StoreNumbers(int64_t row, const RowNumbers& numbers);
  struct GroupNumbers {
    float scale = 0.0F;
    float minimum = 0.0F;
  };
  GroupNumbers NumbersOf(int64_t row, int64_t g) const;

  QuantizedWeightShape shape_;
  WeightFormat format_;
  QuantizedLayout layout_;
  int64_t num_panels_;
  std::shared_ptr<std::byte> panels_;
  std::vector<int32_t> column_order_;
  std::vector<float> factors_;
  std::vector<float> bias_;
  std::atomic<bool> has_bias_{false};
};

}  // namespace tandem
