#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/row_tasks.h"

namespace tandem {

void HostOps::SiluMul(Stream& stream, const SiluMulArgs& args) {
  TANDEM_CHECK(args.gate_up.rows == args.out.rows && args.gate_up.cols == 2 * args.out.cols,
               "silu_mul: gate_up [{}, {}], out [{}, {}]", args.gate_up.rows, args.gate_up.cols,
               args.out.rows, args.out.cols);
  TANDEM_CHECK((args.gate_up.dtype == DType::kF32 || args.gate_up.dtype == DType::kBF16) &&
                   (args.out.dtype == DType::kF32 || args.out.dtype == DType::kBF16),
               "silu_mul: gate_up {}, out {}", DTypeName(args.gate_up.dtype), DTypeName(args.out.dtype));
  AsHostStream(stream).Enqueue([args, &row_kernels = row_](ComputePool& pool) {
    ForEachRow(pool, args.out.rows, args.out.cols, [&](int64_t row) {
      row_kernels.silu_mul(args.gate_up.RowData(row), args.gate_up.dtype, args.out.cols,
                           args.out.RowData(row), args.out.dtype);
    });
  });
}

}  // namespace tandem
