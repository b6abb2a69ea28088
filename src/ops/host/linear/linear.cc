#include <algorithm>

#include "base/check.h"
#include "base/cpu_features.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/linear/linear_onednn.h"
#include "ops/host/linear/linear_weight.h"

namespace tandem {
namespace {

// How a product is divided: row chunks x column ranges. Results do not depend on it.
struct LinearSplit {
  int64_t chunk_rows = 0;
  int64_t num_chunks = 0;
  int64_t num_ranges = 0;
  int64_t units_a_step = 1;  // range borders lie at multiples of this many units
};

LinearSplit SplitProduct(int64_t rows, int64_t num_units, int64_t weight_bytes, int num_threads,
                         int64_t group_rows) {
  constexpr int64_t kUnitsPerPanel = kPanelColumns / kColumnsPerUnit;
  constexpr int64_t kUsualChunkRows = 96;
  LinearSplit split;
  if (rows <= kMaxTileRows) {
    split.chunk_rows = rows;
    split.num_chunks = 1;
  } else {
    const int64_t chunks = (rows + kUsualChunkRows - 1) / kUsualChunkRows;
    split.chunk_rows = ((rows + chunks - 1) / chunks + group_rows - 1) / group_rows * group_rows;
    split.num_chunks = (rows + split.chunk_rows - 1) / split.chunk_rows;
  }
  if (num_threads == 1) {
    split.num_ranges = 1;
    return split;
  }
  // Few rows: reading the weights takes the time, and handing out a task costs as much as reading some KiB.
  // Many rows: several tasks a thread, so that a thread that was held up does not hold up all.
  constexpr int64_t kTaskBytes = 96 << 10;
  const int64_t wanted =
      rows >= 32 ? (4 * num_threads + split.num_chunks - 1) / split.num_chunks
                 : std::clamp<int64_t>(weight_bytes / kTaskBytes / num_threads, 1, 8) * num_threads;
  split.num_ranges = std::clamp<int64_t>(wanted, 1, num_units);
  // Whole panels where that costs no balance.
  if (num_units >= 4 * kUnitsPerPanel * split.num_ranges ||
      num_units / kUnitsPerPanel % split.num_ranges == 0) {
    split.units_a_step = kUnitsPerPanel;
  }
  return split;
}

void CheckLinear(const LinearArgs& args, const HostLinearWeight& weight) {
  TANDEM_CHECK(args.x.cols == weight.in_features() && args.y.cols == weight.out_features() &&
                   args.x.rows == args.y.rows,
               "linear: x [{}, {}], weight [{}, {}], y [{}, {}]", args.x.rows, args.x.cols,
               weight.out_features(), weight.in_features(), args.y.rows, args.y.cols);
  TANDEM_CHECK(
      args.x.dtype == weight.dtype() && (args.y.dtype == DType::kF32 || args.y.dtype == weight.dtype()),
      "linear: x {}, weight {}, y {}", DTypeName(args.x.dtype), DTypeName(weight.dtype()),
      DTypeName(args.y.dtype));
}

LinearTile MakeTile(const LinearArgs& args, const HostLinearWeight& weight, int64_t row, int64_t num_rows,
                    int64_t first_unit, int64_t end_unit, const ProductFetch& fetch) {
  LinearTile tile;
  tile.fetch = fetch;
  tile.num_rows = num_rows;
  tile.x = args.x.RowData(row);
  tile.x_stride = args.x.row_stride;
  tile.panels = weight.panels();
  tile.panel_stride = weight.panel_stride();
  tile.in_features = weight.in_features();
  tile.first_unit = first_unit;
  tile.end_unit = end_unit;
  tile.bias = weight.bias();
  tile.y = args.y.RowData(row);
  tile.y_stride = args.y.row_stride;
  tile.out_features = weight.out_features();
  return tile;
}

auto KernelFor(const LinearArgs& args, const LinearKernels& kernels) {
  if (args.x.dtype == DType::kF32) return kernels.f32;
  return args.y.dtype == DType::kF32 ? kernels.bf16_to_f32 : kernels.bf16_to_bf16;
}

void RunWithOwnKernel(ComputePool& pool, const LinearArgs& args, const HostLinearWeight& weight,
                      const LinearKernels& kernels, const ProductFetch& fetch) {
  auto* kernel = KernelFor(args, kernels);
  const int64_t num_units = (weight.out_features() + kColumnsPerUnit - 1) / kColumnsPerUnit;
  const LinearSplit split = SplitProduct(args.x.rows, num_units, static_cast<int64_t>(weight.size_bytes()),
                                         pool.num_threads(), kernels.max_group_rows);
  const int64_t num_steps = (num_units + split.units_a_step - 1) / split.units_a_step;
  pool.ParallelFor(split.num_chunks * split.num_ranges, [&](int64_t task) {
    const int64_t row = task % split.num_chunks * split.chunk_rows;
    const int64_t range = task / split.num_chunks;
    kernel(MakeTile(args, weight, row, std::min(split.chunk_rows, args.x.rows - row),
                    range * num_steps / split.num_ranges * split.units_a_step,
                    std::min(num_units, (range + 1) * num_steps / split.num_ranges * split.units_a_step),
                    fetch));
  });
}

void RunWithOneDnn(ComputePool& pool, const LinearArgs& args, const HostLinearWeight& weight,
                   const LinearKernels& kernels) {
  constexpr int64_t kUnitsPerPanel = kPanelColumns / kColumnsPerUnit;
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
      KernelFor(args, kernels)(MakeTile(args, weight, row + done, std::min(kMaxTileRows, product.rows - done),
                                        panel * kUnitsPerPanel, end_unit, {}));
    }
  });
}

}  // namespace

Result<std::unique_ptr<LinearWeight>> HostOps::CreateLinearWeight(int64_t out_features, int64_t in_features,
                                                                  DType dtype) {
  return HostLinearWeight::Create(out_features, in_features, dtype);
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
  const auto* weight = dynamic_cast<const HostLinearWeight*>(args.weight);
  TANDEM_CHECK(weight != nullptr, "linear: not a weight of the host backend");
  CheckLinear(args, *weight);
  if (args.x.rows == 0) return;
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
