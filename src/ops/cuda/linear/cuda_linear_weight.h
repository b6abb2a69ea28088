// Weights of the cuda backend.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/matrix_view.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/weight_upload.h"
#include "ops/linear.h"

namespace tandem {

// [out][in] row-major in GPU memory, 256-byte aligned. bf16, fp16 or fp32. The rows of a gate-up weight, and
// its biases, lie in the order of GateUpOrder.
class CudaLinearWeight : public LinearWeight {
 public:
  // Errors: kResourceExhausted; kUnsupported for a type that the GPU lacks.
  static Result<std::unique_ptr<LinearWeight>> Create(Device* device, std::shared_ptr<WeightUpload> upload,
                                                      int64_t out_features, int64_t in_features, DType dtype,
                                                      bool is_gate_up = false);

  // Values and biases that lie in memory of others. values: dense; bias: fp32, or null for none;
  // rounded_bias: in the type of the values.
  CudaLinearWeight(const MatrixView& values, const float* bias, const void* rounded_bias, bool is_gate_up);
  // The same with values of FP8 (E4M3), which count times the scale of their row. dtype: of x and of
  // rounded_bias; scales: [out] fp32.
  CudaLinearWeight(const MatrixView& values, DType dtype, const float* scales, const float* bias,
                   const void* rounded_bias, bool is_gate_up);

  int64_t out_features() const override { return out_features_; }
  int64_t in_features() const override { return in_features_; }
  DType dtype() const override { return dtype_; }
  size_t size_bytes() const override { return memory_.size_bytes(); }
  void LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) override;
  void LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) override;
  void FillRandom(const RandomValues& values) override;

  bool is_gate_up() const { return order_.has_value(); }
  // Of dtype(), or FP8.
  MatrixView view() const {
    return MatrixView::Dense(values_, is_fp8() ? DType::kF8E4M3 : dtype_, out_features_, in_features_);
  }
  bool is_fp8() const { return scales_ != nullptr; }
  // [out] fp32 in GPU memory. Only of FP8.
  const float* scales() const { return scales_; }
  bool has_bias() const { return has_bias_.load(std::memory_order_relaxed); }
  // [out] in GPU memory; zeros where no bias was loaded. dtype: fp32 or dtype().
  const void* bias(DType dtype) const;

 private:
  CudaLinearWeight(Device* device, std::shared_ptr<WeightUpload> upload, int64_t out_features,
                   int64_t in_features, DType dtype, bool is_gate_up);

  // Copies values of rows [row_begin, row_begin + num_rows), value_bytes each, to where they belong in the
  // values of all rows.
  void Upload(void* all, size_t value_bytes, int64_t row_begin, int64_t num_rows, const void* values);

  Device* device_;
  std::shared_ptr<WeightUpload> upload_;
  int64_t out_features_;
  int64_t in_features_;
  DType dtype_;
  std::optional<GateUpOrder> order_;
  Buffer memory_;  // the weight, the bias in fp32, the bias in dtype_; empty: they lie elsewhere
  void* values_ = nullptr;
  const float* scales_ = nullptr;
  std::byte* bias_ = nullptr;
  std::byte* rounded_bias_ = nullptr;  // that in fp32 if dtype_ is
  std::atomic<bool> has_bias_ = false;
};

}  // namespace tandem
