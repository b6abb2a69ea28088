// Weights of the cuda backend that are kept as integers.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/code_upload.h"
#include "ops/cuda/linear/quantized/coded_weight.h"

namespace tandem {

class CudaQuantizedWeight final : public CudaCodedWeight {
 public:
  // Whether the kernels multiply weights of a format with rows of in_features at dtype.
  static bool Keeps(const Device& device, const WeightFormat& format, int64_t in_features, DType dtype);
  // Errors: kResourceExhausted. CHECKs that it Keeps such.
  static Result<std::unique_ptr<CudaCodedWeight>> Create(Device* device, std::shared_ptr<WeightUpload> upload,
                                                         std::shared_ptr<CodeUpload> code_upload,
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

 private:
  CudaQuantizedWeight(Device* device, std::shared_ptr<WeightUpload> upload,
                      std::shared_ptr<CodeUpload> code_upload, const QuantizedWeightShape& shape,
                      const WeightFormat& format);

  bool Streams(const CudaTarget& target, const CodeRows& code_rows, const MatrixView& x,
               const MatrixView& y) const;

  std::shared_ptr<CodeUpload> code_upload_;
  CodesView codes_;
};

}  // namespace tandem
