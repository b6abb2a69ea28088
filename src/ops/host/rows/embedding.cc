#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/row_tasks.h"

namespace tandem {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16;
}

}  // namespace

void HostOps::Embedding(Stream& stream, const EmbeddingArgs& args) {
  TANDEM_CHECK(args.table.cols == args.out.cols && IsFloat(args.table.dtype) &&
                   (args.out.dtype == DType::kF32 || args.out.dtype == args.table.dtype),
               "embedding: table [{}, {}] {}, out [{}, {}] {}", args.table.rows, args.table.cols,
               DTypeName(args.table.dtype), args.out.rows, args.out.cols, DTypeName(args.out.dtype));
  AsHostStream(stream).Enqueue([args, &row_kernels = row_](ComputePool& pool) {
    ForEachRow(pool, args.out.rows, args.out.cols, [&](int64_t row) {
      const int32_t id = args.ids[row];
      TANDEM_CHECK(id >= 0 && id < args.table.rows, "embedding: id {} of a vocabulary of {}", id,
                   args.table.rows);
      row_kernels.convert(args.table.RowData(id), args.table.dtype, args.out.RowData(row), args.out.dtype,
                          args.out.cols);
    });
  });
}

}  // namespace tandem
