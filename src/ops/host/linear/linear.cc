#include <algorithm>

#include "base/check.h"
#include "base/cpu_features.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/linear/linear_onednn.h"
#include "ops/host/linear/linear_split.h"
#include "ops/host/linear/linear_weight.h"
#include "ops/host/linear/quantized_weight.h"

namespace tandem {
namespace {

void CheckLinear(const LinearArgs& args) {
  const LinearWeight& weight = *args.weight;
  TANDEM_CHECK(args.x.cols == weight.in_features() && args.y.cols == weight.out_features() &&
                   args.x.rows == args.y.rows,
               "linear: x [{}, {}], weight [{}, {}], y [{}, {}]", args.x.rows, args.x.cols,
               weight.out_features(), weight.in_features(), args.y.rows, args.y.cols);
  TANDEM_CHECK(
      args.x.dtype == weight.dtype() && (args.y.dtype == DType::kF32 || args.y.dtype == weight.dtype()),
      "linear: x {}, weight {}, y {}", DTypeName(args.x.dtype), DTypeName(weight.dtype()),
      DTypeName(args.y.dtype));
}

LinearTile MakeTile(const LinearArgs& args, const HostLinearWeight& weight, const LinearRange& range,
                    const ProductFetch& fetch) {
  auto tile = TileOf<LinearTile>(args, weight, range);
  tile.fetch = fetch;
  tile.panel_stride = weight.panel_stride();
  tile.in_features = weight.in_features();
  return tile;
}

void RunWithOwnKernel(ComputePool& pool, const LinearArgs& args, const HostLinearWeight& weight,
                      const LinearKernels& kernels, const ProductFetch& fetch) {
  auto* kernel = KernelFor(args, kernels);
  ForEachLinearRange(pool, args.x.rows, weight.out_features(), static_cast<int64_t>(weight.size_bytes()),
                     kernels.max_group_rows,
                     [&](const LinearRange& range) { kernel(MakeTile(args, weight, range, fetch)); });
}

void RunWithOneDnn(ComputePool& pool, const LinearArgs& args, const HostLinearWeight& weight,
                   const LinearKernels& kernels) {
  constexpr int64_t kRowsATask = 256;  // what a thread copies of y stays in its cache
  const int64_t num_chunks = (args.x.rows + kRowsATask - 1) / kRowsATask;
  const int64_t num_ranges = std::clamp<int64_t>(4 * pool.num_threads() / num_chunks, 1, weight.num_panels());
  const int64_t panels_a_task = (weight.num_panels() + num_ranges - 1) / num_ranges;
  const int64_t num_tasks = (weight.num_panels() + panels_a_task - 1) / panels_a_task * num_chunks;
  pool.ParallelFor(num_tasks, [&](int64_t task) {
    const int64_t row = task % num_chunks * kRowsATask;
    const int64_t panel = task / num_chunks * panels_a_task;
    const int64_t column = panel * kPanelColumns;
    OneDnnProduct product;
    product.rows = std::min(kRowsATask, args.x.rows - row);
    product.cols = std::min(panels_a_task * kPanelColumns, weight.out_features() - column);
    product.depth = weight.in_features();
    product.dtype = weight.dtype();
    product.y_dtype = args.y.dtype;
    product.x = args.x.RowData(row);
    product.x_stride = args.x.row_stride;
    product.panels = static_cast<const std::byte*>(weight.panels()) +
                     static_cast<size_t>(panel * weight.panel_stride()) * DTypeSize(weight.dtype());
    product.bias = weight.bias() == nullptr ? nullptr : weight.bias() + column;
    product.y = args.y.Columns(column, product.cols).RowData(row);
    product.y_stride = args.y.row_stride;
    if (RunOneDnnProduct(product)) return;
    const int64_t end_unit = panel * kUnitsPerPanel + (product.cols + kColumnsPerUnit - 1) / kColumnsPerUnit;
    for (int64_t done = 0; done < product.rows; done += kMaxTileRows) {
      KernelFor(args, kernels)(MakeTile(args, weight,
                                        {.row = row + done,
                                         .num_rows = std::min(kMaxTileRows, product.rows - done),
                                         .first_unit = panel * kUnitsPerPanel,
                                         .end_unit = end_unit},
                                        {}));
    }
  });
}

}  // namespace

Result<std::unique_ptr<LinearWeight>> HostOps::CreateLinearWeight(int64_t out_features, int64_t in_features,
                                                                  DType dtype) {
  return HostLinearWeight::Create(out_features, in_features, dtype, &weight_arena_);
}

bool HostOps::UseOneDnn(DType dtype, int64_t num_rows) const {
  // A tile of AMX holds 16 rows. Below that the own kernel keeps up: the weights' bandwidth is the limit.
  constexpr int64_t kAmxRows = 16;
  static const bool has_amx = HostCpuFeatures().amx_bf16;
  switch (options_.onednn) {
    case OneDnnUse::kNever:
      return false;
    case OneDnnUse::kAlways:
      return true;
    case OneDnnUse::kAuto:
      return has_amx && dtype == DType::kBF16 && num_rows >= kAmxRows;
  }
  return false;
}

void HostOps::Linear(Stream& stream, const LinearArgs& args) {
  CheckLinear(args);
  if (args.x.rows == 0) return;
  if (const auto* quantized = dynamic_cast<const HostQuantizedWeight*>(args.weight))
    return LinearQuantized(stream, args, *quantized);
  const auto* weight = dynamic_cast<const HostLinearWeight*>(args.weight);
  TANDEM_CHECK(weight != nullptr, "linear: not a weight of the host backend");
  const bool use_onednn = UseOneDnn(weight->dtype(), args.x.rows);
  AsHostStream(stream).Enqueue(
      [args, weight, use_onednn, &kernels = linear_, fetch = options_.product_fetch](ComputePool& pool) {
        if (use_onednn) {
          RunWithOneDnn(pool, args, *weight, kernels);
        } else {
          RunWithOwnKernel(pool, args, *weight, kernels, fetch);
        }
      });
}

}  // namespace tandem
