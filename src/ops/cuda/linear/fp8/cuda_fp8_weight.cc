#include "ops/cuda/linear/fp8/cuda_fp8_weight.h"

#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/linear/fp8/fp8_linear.h"
#include "ops/cuda/linear/fp8/fp8_rows.h"

namespace tandem {

CudaFp8Weight::CudaFp8Weight(Device* device, std::shared_ptr<WeightUpload> upload,
                             const QuantizedWeightShape& shape, const WeightFormat& format)
    : CudaCodedWeight(device, std::move(upload), shape, format) {
  view_.out_features = shape.out_features;
  view_.in_features = shape.in_features;
  view_.group_size = format.group_size;
  constexpr int kFirstWithFp8 = 89;
  has_fp8_products_ = CudaTargetOf(*device).compute_capability >= kFirstWithFp8 && view_.has_row_scales() &&
                      shape.out_features % 16 == 0 && shape.in_features <= kMaxFp8RowWidth;
}

bool CudaFp8Weight::Keeps(const Device& device, const WeightFormat& format, int64_t in_features,
                          DType dtype) {
  return (dtype == DType::kBF16 || dtype == DType::kF16) &&
         CudaTargetOf(device).compute_capability >= kFirstWithCodes && HasFp8Layout(format, in_features);
}

Result<std::unique_ptr<CudaCodedWeight>> CudaFp8Weight::Create(Device* device,
                                                               std::shared_ptr<WeightUpload> upload,
                                                               const QuantizedWeightShape& shape,
                                                               const WeightFormat& format) {
  TANDEM_CHECK(Keeps(*device, format, shape.in_features, shape.dtype), "rows of {} as {} at {}",
               shape.in_features, DescribeWeightFormat(format), DTypeName(shape.dtype));
  std::unique_ptr<CudaFp8Weight> weight(new CudaFp8Weight(device, std::move(upload), shape, format));
  const auto outputs = static_cast<size_t>(shape.out_features);
  TANDEM_ASSIGN_OR_RETURN(
      const Parts parts,
      weight->Allocate(outputs * static_cast<size_t>(shape.in_features),
                       outputs * static_cast<size_t>(weight->view_.num_groups()) * sizeof(float)));
  weight->codes_ = reinterpret_cast<uint8_t*>(parts.codes);
  weight->scales_ = reinterpret_cast<float*>(parts.numbers);
  weight->view_.codes = weight->codes_;
  weight->view_.scales = weight->scales_;
  return std::unique_ptr<CudaCodedWeight>(std::move(weight));
}

void CudaFp8Weight::LoadQuantizedRows(int64_t row_begin, const QuantizedRows& rows) {
  CheckRows(row_begin, rows);
  UploadRows(codes_, static_cast<size_t>(rows.cols), row_begin, rows.num_rows, rows.codes.data());
  UploadRows(scales_, static_cast<size_t>(rows.num_groups()) * sizeof(float), row_begin, rows.num_rows,
             rows.scales.data());
}

bool CudaFp8Weight::CanMultiply(const CudaTarget& target, const CodeRows& code_rows, const MatrixView& x,
                                const MatrixView& /*y*/) const {
  return x.rows <= code_rows.max && Fp8LinearSupports(target, x, view_);
}

void CudaFp8Weight::LaunchProduct(CudaStream& stream, const CodeRows& /*code_rows*/, const MatrixView& x,
                                  const MatrixView& y, const QuantizedWorkspace& workspace) const {
  LaunchFp8Linear(stream, x, view_, bias(), y, workspace);
}

bool CudaFp8Weight::LaunchGateUp(CudaStream& stream, const CodeRows& code_rows, const MatrixView& x,
                                 const MatrixView& y, const QuantizedWorkspace& /*workspace*/) const {
  if (x.rows > code_rows.max || !Fp8GateUpSupports(stream.target(), x, view_)) return false;
  LaunchFp8GateUp(stream, x, view_, bias(), y);
  return true;
}

void CudaFp8Weight::LaunchDequantize(CudaStream& stream, int64_t first_output, const MatrixView& to) const {
  LaunchDequantizeFp8(stream, view_, first_output, to);
}

void CudaFp8Weight::LaunchGather(CudaStream& stream, const int32_t* ids, int32_t first_id,
                                 const MatrixView& to) const {
  LaunchGatherFp8(stream, view_, ids, first_id, to);
}

CudaLinearWeight CudaFp8Weight::AsLinear() const {
  const MatrixView values = MatrixView::Dense(codes_, DType::kF8E4M3, out_features(), in_features());
  return {values, dtype(), scales_, bias(), rounded_bias(), is_gate_up()};
}

}  // namespace tandem
