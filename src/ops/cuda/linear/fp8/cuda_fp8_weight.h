// Weights of the cuda backend that are kept as FP8 (E4M3).
#pragma once

#include <cstdint>
#include <memory>

#include "ops/cuda/linear/cuda_linear_weight.h"
#include "ops/cuda/linear/fp8/fp8_view.h"
#include "ops/cuda/linear/quantized/coded_weight.h"

namespace tandem {

class CudaFp8Weight final : public CudaCodedWeight {
 public:
  // Whether the kernels multiply weights of a format with rows of in_features at dtype.
  static bool Keeps(const Device& device, const WeightFormat& format, int64_t in_features, DType dtype);
  // Errors: kResourceExhausted. CHECKs that it Keeps such.
  static Result<std::unique_ptr<CudaCodedWeight>> Create(Device* device, std::shared_ptr<WeightUpload> upload,
                                                         const QuantizedWeightShape& shape,
                                                         const WeightFormat& format);

  void LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) override;

  bool CanMultiply(const CudaTarget& target, const CodeRows& code_rows, const MatrixView& x,
                   const MatrixView& y) const override;
  void LaunchProduct(CudaStream& stream, const CodeRows& code_rows, const MatrixView& x, const MatrixView& y,
                     const QuantizedWorkspace& workspace) const override;
  bool LaunchGateUp(CudaStream& stream, const CodeRows& code_rows, const MatrixView& x, const MatrixView& y,
                    const QuantizedWorkspace& workspace) const override;
  void LaunchDequantize(CudaStream& stream, int64_t first_output, const MatrixView& to) const override;
  void LaunchGather(CudaStream& stream, const int32_t* ids, int32_t first_id,
                    const MatrixView& to) const override;

  const Fp8View& view() const { return view_; }
  // Whether cuBLASLt multiplies it by activations of FP8: a scale a row, sizes and a GPU that suit. It does
  // so as AsLinear().
  bool HasFp8Products() const { return has_fp8_products_; }
  // The same memory.
  CudaLinearWeight AsLinear() const;

 private:
  CudaFp8Weight(Device* device, std::shared_ptr<WeightUpload> upload, const QuantizedWeightShape& shape,
                const WeightFormat& format);

  Fp8View view_;
  uint8_t* codes_ = nullptr;
  float* scales_ = nullptr;
  bool has_fp8_products_ = false;
};

}  // namespace tandem
