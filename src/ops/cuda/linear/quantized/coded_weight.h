// What weights of the cuda backend that are kept as codes have in common, whatever the codes are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/quantized/code_rows.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/weight_upload.h"
#include "ops/linear.h"

namespace tandem {

constexpr int kFirstWithCodes = 80;  // compute capability

// Rows of a gate-up weight, and its biases, lie in the order of GateUpOrder.
class CudaCodedWeight : public QuantizedLinearWeight {
 public:
  int64_t out_features() const override { return shape_.out_features; }
  int64_t in_features() const override { return shape_.in_features; }
  DType dtype() const override { return shape_.dtype; }
  WeightFormat format() const override { return format_; }
  size_t size_bytes() const override { return memory_.size_bytes(); }
  void LoadRows(int64_t row_begin, int64_t num_rows, const void* rows) override;
  void LoadBias(int64_t row_begin, int64_t num_rows, const float* bias) override;
  void FillRandom(const RandomValues& values) override;

  // True if LaunchProduct can do the product, and is to.
  virtual bool CanMultiply(const CudaTarget& target, const CodeRows& code_rows, const MatrixView& x,
                           const MatrixView& y) const = 0;
  // y[rows, out] = x[rows, in] weight^T + bias. y: fp32 or x's dtype.
  virtual void LaunchProduct(CudaStream& stream, const CodeRows& code_rows, const MatrixView& x,
                             const MatrixView& y, const QuantizedWorkspace& workspace) const = 0;
  // y[rows, out / 2] = silu(gate) * up of the product, in one kernel. False: there is none, nothing is done.
  virtual bool LaunchGateUp(CudaStream& /*stream*/, const CodeRows& /*code_rows*/, const MatrixView& /*x*/,
                            const MatrixView& /*y*/, const QuantizedWorkspace& /*workspace*/) const {
    return false;
  }
  // to[i, :] = output first_output + i, rounded once. to: [any, in_features] dense, dtype(), 16-byte aligned.
  // first_output: a multiple of 64.
  virtual void LaunchDequantize(CudaStream& stream, int64_t first_output, const MatrixView& to) const = 0;
  // to[i, :] = output ids[i] - first_id; zeros where there is none of that number. ids: GPU memory; to: fp32.
  virtual void LaunchGather(CudaStream& stream, const int32_t* ids, int32_t first_id,
                            const MatrixView& to) const = 0;

  bool is_gate_up() const { return shape_.is_gate_up; }
  // [out] fp32 in GPU memory; null: none.
  const float* bias() const;
  // The same in dtype(). Only where there is a bias.
  const uint16_t* rounded_bias() const { return rounded_bias_; }

 protected:
  CudaCodedWeight(Device* device, std::shared_ptr<WeightUpload> upload, const QuantizedWeightShape& shape,
                  const WeightFormat& format);

  // Takes memory for codes and numbers_bytes behind them, each 256-byte aligned, and for the biases; all of
  // it is 0. Errors: kResourceExhausted.
  struct Parts {
    std::byte* codes = nullptr;
    std::byte* numbers = nullptr;
  };
  Result<Parts> Allocate(size_t codes_bytes, size_t numbers_bytes);
  // CHECKs that the weight has such rows.
  void CheckRows(int64_t row_begin, int64_t num_rows) const;
  // And that they are in its format.
  void CheckRows(int64_t row_begin, const QuantizedRows& rows) const;
  // Where logical rows [row_begin, row_begin + num_rows) lie.
  std::vector<int32_t> PlacesOf(int64_t row_begin, int64_t num_rows) const;
  // Brings values of rows to where they belong among those of all outputs.
  void UploadRows(void* all, size_t value_bytes, int64_t row_begin, int64_t num_rows, const void* values);

 private:
  Device* device_;
  std::shared_ptr<WeightUpload> upload_;
  QuantizedWeightShape shape_;
  WeightFormat format_;
  std::optional<GateUpOrder> order_;
  Buffer memory_;
  float* bias_ = nullptr;
  uint16_t* rounded_bias_ = nullptr;
  std::atomic<bool> has_bias_ = false;
};

}  // namespace tandem
