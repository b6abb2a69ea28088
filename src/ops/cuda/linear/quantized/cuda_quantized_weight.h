// Weights of the cuda backend that are kept as codes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/code_upload.h"
#include "ops/cuda/linear/weight_upload.h"
#include "ops/linear.h"

namespace tandem {

// Rows of a gate-up weight, and its biases, lie in the order of GateUpOrder.
class CudaQuantizedWeight : public QuantizedLinearWeight {
 public:
  // Whether the kernels multiply weights of a format with rows of in_features at dtype.
  static bool Keeps(const Device& device, const WeightFormat& format, int64_t in_features, DType dtype);
  // Errors: kResourceExhausted; kUnsupported unless Keeps.
  static Result<std::unique_ptr<QuantizedLinearWeight>> Create(Device* device,
                                                               std::shared_ptr<WeightUpload> upload,
                                                               std::shared_ptr<CodeUpload> code_upload,
                                                               const QuantizedWeightShape& shape,
                                                               const WeightFormat& format);

  int64_t out_features() const override { return shape_.out_features; }
  int64_t in_features() const override { return shape_.in_features; }
  DType dtype() const override { return shape_.dtype; }
  WeightFormat format() const override { return format_; }
  size_t size_bytes() const override { return memory_.size_bytes(); }
  void LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) override;
  void LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) override;
  void LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) override;
  void FillRandom(uint64_t seed, float bound) override;

  bool is_gate_up() const { return shape_.is_gate_up; }
  const CodesView& codes() const { return codes_; }
  // [out] fp32 in GPU memory; null: none.
  const float* bias() const;
  // The same in dtype(). Only where there is a bias.
  const uint16_t* rounded_bias() const { return rounded_bias_; }

 private:
  CudaQuantizedWeight(Device* device, std::shared_ptr<WeightUpload> upload,
                      std::shared_ptr<CodeUpload> code_upload, const QuantizedWeightShape& shape,
                      const WeightFormat& format);

  void CheckRows(int64_t row_begin, int64_t num_rows) const;
  // Copies numbers of rows to where they belong among those of all outputs.
  template <typename Number>
  void UploadInOrder(Number* all, int64_t row_begin, int64_t num_rows, const Number* numbers);
  // Where a logical row lies.
  int64_t PlaceOf(int64_t row) const { return order_ ? order_->PlaceOf(row) : row; }

  Device* device_;
  std::shared_ptr<WeightUpload> upload_;
  std::shared_ptr<CodeUpload> code_upload_;
  QuantizedWeightShape shape_;
  WeightFormat format_;
  std::optional<GateUpOrder> order_;
  Buffer memory_;  // records, factors, bias, bias in dtype()
  CodesView codes_;
  float* bias_ = nullptr;
  uint16_t* rounded_bias_ = nullptr;
  std::atomic<bool> has_bias_ = false;
};

}  // namespace tandem
