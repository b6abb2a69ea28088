// A weight packed into the panels of linear_kernels.h, which are also oneDNN's blocked formats BA16a64b
// (fp32) and BA16a64b2a (bf16).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "ops/host/linear/weight_arena.h"
#include "ops/linear.h"

namespace tandem {

class HostLinearWeight : public LinearWeight {
 public:
  // Errors: kUnsupported for other types; kResourceExhausted.
  static Result<std::unique_ptr<LinearWeight>> Create(int64_t out_features, int64_t in_features, DType dtype,
                                                      WeightArena* arena);

  int64_t out_features() const override { return out_features_; }
  int64_t in_features() const override { return in_features_; }
  DType dtype() const override { return dtype_; }
  size_t size_bytes() const override { return size_bytes_; }
  void LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) override;
  void LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) override;
  void FillRandom(const RandomValues& values) override;

  const void* panels() const { return panels_.get(); }
  // Elements from one panel of 64 output columns to the next.
  int64_t panel_stride() const { return panel_stride_; }
  int64_t num_panels() const { return num_panels_; }
  // As long as all panels; nullptr if no bias was loaded.
  const float* bias() const { return has_bias_.load(std::memory_order_relaxed) ? bias_.data() : nullptr; }

 private:
  HostLinearWeight(int64_t out_features, int64_t in_features, DType dtype);

  int64_t out_features_;
  int64_t in_features_;
  DType dtype_;
  int64_t num_panels_;
  int64_t panel_stride_;
  size_t size_bytes_;
  std::shared_ptr<std::byte> panels_;
  std::vector<float> bias_;
  std::atomic<bool> has_bias_{false};
};

}  // namespace tandem
