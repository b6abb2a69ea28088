#include <cstring>

#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/linear/quantized_weight.h"
#include "ops/host/row_tasks.h"

namespace tandem {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16;
}

// The row of the table, or -1 if another part of the vocabulary has it.
int64_t TableRow(const EmbeddingArgs& args, int64_t row, int64_t num_table_rows) {
  const int64_t id = int64_t{args.ids[row]} - args.first_id;
  const bool is_here = id >= 0 && id < num_table_rows;
  TANDEM_CHECK(is_here || args.is_part, "embedding: id {} of a vocabulary of {}", id, num_table_rows);
  return is_here ? id : -1;
}

void Clear(const MatrixView& out, int64_t row) {
  std::memset(out.RowData(row), 0, static_cast<size_t>(out.cols) * DTypeSize(out.dtype));
}

}  // namespace

void HostOps::Embedding(Stream& stream, const EmbeddingArgs& args) {
  if (args.quantized != nullptr) {
    const auto* weight = dynamic_cast<const HostQuantizedWeight*>(args.quantized);
    TANDEM_CHECK(weight != nullptr && weight->in_features() == args.out.cols && args.out.dtype == DType::kF32,
                 "embedding: a quantized weight with rows of {}, out [{}, {}] {}",
                 args.quantized->in_features(), args.out.rows, args.out.cols, DTypeName(args.out.dtype));
    AsHostStream(stream).Enqueue([args, weight](ComputePool& pool) {
      ForEachRow(pool, args.out.rows, args.out.cols, [&](int64_t row) {
        const int64_t table_row = TableRow(args, row, weight->out_features());
        if (table_row < 0) return Clear(args.out, row);
        weight->DequantizeRow(table_row, static_cast<float*>(args.out.RowData(row)));
      });
    });
    return;
  }
  TANDEM_CHECK(args.table.cols == args.out.cols && IsFloat(args.table.dtype) &&
                   (args.out.dtype == DType::kF32 || args.out.dtype == args.table.dtype),
               "embedding: table [{}, {}] {}, out [{}, {}] {}", args.table.rows, args.table.cols,
               DTypeName(args.table.dtype), args.out.rows, args.out.cols, DTypeName(args.out.dtype));
  AsHostStream(stream).Enqueue([args, &row_kernels = row_](ComputePool& pool) {
    ForEachRow(pool, args.out.rows, args.out.cols, [&](int64_t row) {
      const int64_t table_row = TableRow(args, row, args.table.rows);
      if (table_row < 0) return Clear(args.out, row);
      row_kernels.convert(args.table.RowData(table_row), args.table.dtype, args.out.RowData(row),
                          args.out.dtype, args.out.cols);
    });
  });
}

}  // namespace tandem
