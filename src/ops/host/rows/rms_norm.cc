#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/row_tasks.h"

namespace tandem {

void HostOps::AddRmsNorm(Stream& stream, const AddRmsNormArgs& args) {
  const bool has_delta = args.delta.data != nullptr;
  TANDEM_CHECK(args.residual.dtype == DType::kF32 && args.residual.rows == args.out.rows &&
                   args.residual.cols == args.out.cols && args.weight != nullptr,
               "add_rms_norm: residual [{}, {}] {}, out [{}, {}]", args.residual.rows, args.residual.cols,
               DTypeName(args.residual.dtype), args.out.rows, args.out.cols);
  TANDEM_CHECK(!has_delta || (args.delta.rows == args.out.rows && args.delta.cols == args.out.cols),
               "add_rms_norm: delta [{}, {}], out [{}, {}]", args.delta.rows, args.delta.cols, args.out.rows,
               args.out.cols);
  TANDEM_CHECK((args.out.dtype == DType::kF32 || args.out.dtype == DType::kBF16) &&
                   (args.delta.dtype == DType::kF32 || args.delta.dtype == DType::kBF16),
               "add_rms_norm: delta {}, out {}", DTypeName(args.delta.dtype), DTypeName(args.out.dtype));
  AsHostStream(stream).Enqueue([args, has_delta, &row_kernels = row_](ComputePool& pool) {
    ForEachRow(pool, args.out.rows, args.out.cols, [&](int64_t row) {
      row_kernels.add_rms_norm(static_cast<float*>(args.residual.RowData(row)),
                               has_delta ? args.delta.RowData(row) : nullptr, args.delta.dtype, args.weight,
                               args.eps, args.out.cols, args.out.RowData(row), args.out.dtype);
    });
  });
}

}  // namespace tandem
