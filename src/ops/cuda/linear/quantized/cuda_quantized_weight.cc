#include "ops/cuda/linear/quantized/cuda_quantized_weight.h"

#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/linear/quantized/dequantize.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/quantized/streamed_codes.h"

namespace tandem {

CudaQuantizedWeight::CudaQuantizedWeight(Device* device, std::shared_ptr<WeightUpload> upload,
                                         std::shared_ptr<CodeUpload> code_upload,
                                         const QuantizedWeightShape& shape, const WeightFormat& format)
    : CudaCodedWeight(device, std::move(upload), shape, format), code_upload_(std::move(code_upload)) {
  codes_.layout = MakeCodeLayout(format, shape.in_features);
  codes_.out_features = shape.out_features;
}

bool CudaQuantizedWeight::Keeps(const Device& device, const WeightFormat& format, int64_t in_features,
                                DType dtype) {
  return HasQuantizedProducts(CudaTargetOf(device), dtype) && HasCodeLayout(format, in_features);
}

Result<std::unique_ptr<CudaCodedWeight>> CudaQuantizedWeight::Create(Device* device,
                                                                     std::shared_ptr<WeightUpload> upload,
                                                                     std::shared_ptr<CodeUpload> code_upload,
                                                                     const QuantizedWeightShape& shape,
                                                                     const WeightFormat& format) {
  TANDEM_CHECK(Keeps(*device, format, shape.in_features, shape.dtype), "rows of {} as {} at {}",
               shape.in_features, DescribeWeightFormat(format), DTypeName(shape.dtype));
  std::unique_ptr<CudaQuantizedWeight> weight(
      new CudaQuantizedWeight(device, std::move(upload), std::move(code_upload), shape, format));
  TANDEM_ASSIGN_OR_RETURN(
      const Parts parts,
      weight->Allocate(static_cast<size_t>(weight->codes_.layout.TotalBytes(shape.out_features)),
                       static_cast<size_t>(shape.out_features) * sizeof(float)));
  weight->codes_.records = parts.codes;
  weight->codes_.factors = reinterpret_cast<float*>(parts.numbers);
  return std::unique_ptr<CudaCodedWeight>(std::move(weight));
}

void CudaQuantizedWeight::LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) {
  CheckRows(row_begin, rows);
  code_upload_->Pack(rows, PlacesOf(row_begin, rows.num_rows), codes_);
}

bool CudaQuantizedWeight::Streams(const CudaTarget& target, const CodeRows& code_rows, const MatrixView& x,
                                  const MatrixView& y) const {
  return x.rows >= code_rows.min_streamed && StreamedCodesSupports(target, x, codes_, y);
}

bool CudaQuantizedWeight::CanMultiply(const CudaTarget& target, const CodeRows& code_rows,
                                      const MatrixView& x, const MatrixView& y) const {
  return Streams(target, code_rows, x, y) ||
         (x.rows <= code_rows.max && QuantizedLinearSupports(target, x, codes_));
}

void CudaQuantizedWeight::LaunchProduct(CudaStream& stream, const CodeRows& code_rows, const MatrixView& x,
                                        const MatrixView& y, const QuantizedWorkspace& workspace) const {
  if (Streams(stream.target(), code_rows, x, y)) {
    return LaunchStreamedCodes(stream, x, codes_, bias(), y, /*is_gate_up=*/false, workspace);
  }
  LaunchQuantizedLinear(stream, x, codes_, bias(), y, workspace);
}

bool CudaQuantizedWeight::LaunchGateUp(CudaStream& stream, const CodeRows& code_rows, const MatrixView& x,
                                       const MatrixView& y, const QuantizedWorkspace& workspace) const {
  if (Streams(stream.target(), code_rows, x, y)) {
    LaunchStreamedCodes(stream, x, codes_, bias(), y, /*is_gate_up=*/true, workspace);
    return true;
  }
  if (x.rows > code_rows.max || !QuantizedGateUpSupports(stream.target(), x, codes_)) return false;
  LaunchQuantizedGateUp(stream, x, codes_, bias(), y, workspace);
  return true;
}

void CudaQuantizedWeight::LaunchDequantize(CudaStream& stream, int64_t first_output,
                                           const MatrixView& to) const {
  tandem::LaunchDequantize(stream, codes_, first_output, to);
}

void CudaQuantizedWeight::LaunchGather(CudaStream& stream, const int32_t* ids, int32_t first_id,
                                       const MatrixView& to) const {
  LaunchGatherDequantized(stream, codes_, ids, first_id, to);
}

}  // namespace tandem
