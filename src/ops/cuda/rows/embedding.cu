#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/linear/quantized/coded_weight.h"
#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"
#include "ops/cuda/rows/gather_rows.h"

namespace tandem {
namespace {

constexpr int kThreads = 128;

// A CTA converts kThreads * kWidth elements of one row. An id that is not in the table gives zeros.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    WidenRowsKernel(const T* table, int64_t vocab, int64_t table_stride, const int32_t* ids, int32_t first_id,
                    float* out, int64_t out_stride, int cols, int parts) {
  AllowSuccessors();
  const int64_t row = blockIdx.x / parts;
  const int col = (static_cast<int>(blockIdx.x % parts) * kThreads + static_cast<int>(threadIdx.x)) * kWidth;
  WaitForPredecessors();
  if (col >= cols) return;
  const int64_t id = int64_t{ids[row]} - first_id;
  float values[kWidth] = {};
  if (id >= 0 && id < vocab) {
    Run<T, kWidth> run;
    run.Load(table + id * table_stride + col);
    run.Get(values);
  }
  Run<float, kWidth> widened;
  widened.Set(values);
  widened.Store(out + row * out_stride + col);
}

template <typename T, int kWidth>
void LaunchWidenRows(CudaStream& stream, const EmbeddingArgs& args) {
  const unsigned parts = CeilDivide(args.out.cols, kThreads * kWidth);
  LaunchRowKernel<WidenRowsKernel<T, kWidth>>("embedding", static_cast<unsigned>(args.out.rows) * parts,
                                              kThreads, stream, static_cast<const T*>(args.table.data),
                                              args.table.rows, args.table.row_stride, args.ids, args.first_id,
                                              static_cast<float*>(args.out.data), args.out.row_stride,
                                              static_cast<int>(args.out.cols), static_cast<int>(parts));
}

}  // namespace

void CudaOps::Embedding(Stream& stream, const EmbeddingArgs& args) {
  CudaStream& cuda_stream = AsCudaStream(stream);
  if (args.quantized != nullptr) {
    const auto* weight = dynamic_cast<const CudaCodedWeight*>(args.quantized);
    TANDEM_CHECK(weight != nullptr, "embedding: not a weight of the cuda backend");
    return weight->LaunchGather(cuda_stream, args.ids, args.first_id, args.out);
  }
  TANDEM_CHECK(args.table.cols == args.out.cols && IsFloatType(args.table.dtype) &&
                   (args.out.dtype == DType::kF32 || args.out.dtype == args.table.dtype) &&
                   args.ids != nullptr,
               "embedding: table [{}, {}] {}, out [{}, {}] {}", args.table.rows, args.table.cols,
               DTypeName(args.table.dtype), args.out.rows, args.out.cols, DTypeName(args.out.dtype));
  if (args.out.dtype == args.table.dtype) {
    return LaunchGatherRows("embedding", cuda_stream, args.table, args.ids, args.out, args.first_id);
  }
  if (args.out.rows == 0 || args.out.cols == 0) return;
  const bool wide = RowsAligned16(args.table) && RowsAligned16(args.out) && args.out.cols % 8 == 0;
  if (args.table.dtype == DType::kBF16) {
    wide ? LaunchWidenRows<Bf16, 8>(cuda_stream, args) : LaunchWidenRows<Bf16, 1>(cuda_stream, args);
  } else {
    wide ? LaunchWidenRows<Fp16, 8>(cuda_stream, args) : LaunchWidenRows<Fp16, 1>(cuda_stream, args);
  }
}

}  // namespace tandem
