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

void CheckId(int32_t id, int64_t vocab_size) {
  TANDEM_CHECK(id >= 0 && id < vocab_size, "embedding: id {} of a vocabulary of {}", id, vocab_size);
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
        const int32_t id = args.ids[row];
        CheckId(id, weight->out_features());
        weight->DequantizeRow(id, static_cast<float*>(args.out.RowData(row)));
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
      const int32_t id = args.ids[row];
      CheckId(id, args.table.rows);
      row_kernels.convert(args.table.RowData(id), args.table.dtype, args.out.RowData(row), args.out.dtype,
                          args.out.cols);
    });
  });
}

}  // namespace tandem
