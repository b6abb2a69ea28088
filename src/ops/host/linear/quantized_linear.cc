// Products with quantized weights: HostOps::LinearQuantized.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/linear/linear_onednn.h"
#include "ops/host/linear/linear_split.h"
#include "ops/host/linear/quantized_weight.h"
#include "ops/host/row_tasks.h"

namespace tandem {
namespace {

QuantizedTile MakeTile(const LinearArgs& args, const HostQuantizedWeight& weight, const LinearRange& range) {
  auto tile = TileOf<QuantizedTile>(args, weight, range);
  tile.layout = weight.layout();
  tile.factors = weight.factors();
  return tile;
}

// By one of the kernels for f32 and bf16.
void RunCodes(ComputePool& pool, const LinearArgs& args, const HostQuantizedWeight& weight,
              const QuantizedKernels& quantized, int64_t max_group_rows) {
  const int64_t num_groups = weight.layout().num_groups;
  constexpr int64_t kSpareRows = 15;  // QuantizedTile::group_sums
  // Filled by this thread's tasks, read by all: a vector of the product, not of the thread.
  std::vector<float> group_sums;
  if (args.x.dtype == DType::kBF16 && quantized.sum_groups != nullptr) {
    group_sums.resize(static_cast<size_t>((args.x.rows + kSpareRows) * num_groups));
    ForEachRow(pool, args.x.rows, args.x.cols, [&](int64_t row) {
      quantized.sum_groups(static_cast<const uint16_t*>(args.x.RowData(row)), weight.layout().group_size,
                           num_groups, group_sums.data() + row * num_groups);
    });
  }
  ForEachLinearRange(pool, args.x.rows, weight.out_features(), static_cast<int64_t>(weight.size_bytes()),
                     max_group_rows, [&](const LinearRange& range) {
                       QuantizedTile tile = MakeTile(args, weight, range);
                       if (!group_sums.empty()) tile.group_sums = group_sums.data() + range.row * num_groups;
                       KernelFor(args, quantized)(tile);
                     });
}

// Few bf16 rows, in integers.
void RunIntegers(ComputePool& pool, const LinearArgs& args, const HostQuantizedWeight& weight,
                 const QuantizedKernels& quantized, int64_t max_group_rows) {
  const int64_t num_groups = weight.layout().num_groups;
  const int64_t in_features = weight.in_features();
  // Of the stream's thread, which runs one product at a time.
  struct Memory {
    std::vector<uint16_t> values;
    std::vector<float> scales;
    std::vector<float> group_sums;
    std::vector<int32_t> first_sums;
  };
  thread_local Memory of_thread;
  Memory& memory = of_thread;
  const auto grow = [](auto* vector, int64_t size) {
    vector->resize(std::max(vector->size(), static_cast<size_t>(size)));
  };
  grow(&memory.values, args.x.rows * in_features);
  grow(&memory.scales, args.x.rows);
  grow(&memory.group_sums, args.x.rows * num_groups);
  grow(&memory.first_sums, args.x.rows * num_groups);
  ForEachRow(pool, args.x.rows, args.x.cols, [&](int64_t row) {
    quantized.to_integers(
        weight.layout(), static_cast<const uint16_t*>(args.x.RowData(row)),
        {memory.values.data() + row * in_features, memory.scales.data() + row,
         memory.group_sums.data() + row * num_groups, memory.first_sums.data() + row * num_groups});
  });
  auto* kernel = args.y.dtype == DType::kF32 ? quantized.integers_to_f32 : quantized.integers_to_bf16;
  ForEachLinearRange(pool, args.x.rows, weight.out_features(), static_cast<int64_t>(weight.size_bytes()),
                     max_group_rows, [&](const LinearRange& range) {
                       QuantizedTile tile = MakeTile(args, weight, range);
                       tile.x = memory.values.data() + range.row * in_features;
                       tile.x_stride = in_features;
                       tile.group_sums = memory.group_sums.data() + range.row * num_groups;
                       tile.first_sums = memory.first_sums.data() + range.row * num_groups;
                       tile.x_scales = memory.scales.data() + range.row;
                       kernel(tile);
                     });
}

// Dequantized panels of a thread, one after the other as linear_kernels.h has them, with k padded for oneDNN.
class DensePanels {
 public:
  DensePanels(const HostQuantizedWeight& weight, DType dtype)
      : weight_(weight),
        dtype_(dtype),
        panel_values_((weight.in_features() + kDepthMultiple - 1) / kDepthMultiple * kDepthMultiple *
                      kPanelColumns) {}

  int64_t panel_bytes() const { return panel_values_ * static_cast<int64_t>(DTypeSize(dtype_)); }

  // Panels [begin, end) of the weight; valid until the thread's next call.
  const std::byte* Dequantize(int64_t begin, int64_t end, const QuantizedKernels& kernels) const {
    thread_local std::vector<std::byte> memory;
    memory.resize(std::max(memory.size(), static_cast<size_t>((end - begin) * panel_bytes() + 64)));
    std::byte* first = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    const auto used = static_cast<int64_t>(DTypeSize(dtype_)) * weight_.in_features() * kPanelColumns;
    for (int64_t panel = begin; panel < end; ++panel) {
      const std::byte* codes = weight_.panels() + panel * weight_.layout().panel_bytes;
      const float* factors = weight_.factors() + panel * kPanelColumns;
      std::byte* to = first + (panel - begin) * panel_bytes();
      if (dtype_ == DType::kF32) {
        kernels.dequantize_f32(weight_.layout(), codes, factors, reinterpret_cast<float*>(to));
      } else {
        kernels.dequantize_bf16(weight_.layout(), codes, factors, reinterpret_cast<bf16_t*>(to));
      }
      std::memset(to + used, 0, static_cast<size_t>(panel_bytes() - used));
    }
    return first;
  }

 private:
  static constexpr int64_t kDepthMultiple = 32;
  const HostQuantizedWeight& weight_;
  DType dtype_;
  int64_t panel_values_;
};

// Panel by panel: dequantized, then multiplied as weights that never were quantized.
void RunDequantized(const LinearArgs& args, const HostQuantizedWeight& weight, const LinearRange& range,
                    const QuantizedKernels& quantized, const LinearKernels& kernels) {
  const DensePanels dense(weight, args.x.dtype);
  for (int64_t unit = range.first_unit; unit < range.end_unit;) {
    const int64_t panel = unit / kUnitsPerPanel;
    const int64_t column = panel * kPanelColumns;
    LinearTile tile;
    tile.x = args.x.RowData(range.row);
    tile.x_stride = args.x.row_stride;
    tile.num_rows = range.num_rows;
    tile.panels = dense.Dequantize(panel, panel + 1, quantized);
    tile.in_features = weight.in_features();
    tile.first_unit = unit - panel * kUnitsPerPanel;
    tile.end_unit = std::min(range.end_unit - panel * kUnitsPerPanel, kUnitsPerPanel);
    tile.bias = weight.bias() == nullptr ? nullptr : weight.bias() + column;
    tile.out_features = std::min(weight.out_features() - column, kPanelColumns);
    tile.y = args.y.Columns(column, tile.out_features).RowData(range.row);
    tile.y_stride = args.y.row_stride;
    KernelFor(args, kernels)(tile);
    unit = (panel + 1) * kUnitsPerPanel;
  }
}

// False, and nothing is done, if oneDNN has no fast implementation.
bool RunDequantizedWithOneDnn(ComputePool& pool, const LinearArgs& args, const HostQuantizedWeight& weight,
                              const QuantizedKernels& quantized) {
  constexpr int64_t kCacheBytes = 512 << 10;  // of dequantized panels: a part of the L2 cache
  const DensePanels dense(weight, args.x.dtype);
  const int64_t panels_a_task = std::clamp<int64_t>(weight.num_panels() / (4 * pool.num_threads()), 1,
                                                    std::max<int64_t>(1, kCacheBytes / dense.panel_bytes()));
  std::atomic<bool> is_fast{true};
  pool.ParallelFor((weight.num_panels() + panels_a_task - 1) / panels_a_task, [&](int64_t task) {
    const int64_t panel = task * panels_a_task;
    const int64_t end = std::min(panel + panels_a_task, weight.num_panels());
    const int64_t column = panel * kPanelColumns;
    OneDnnProduct product;
    product.cols = std::min((end - panel) * kPanelColumns, weight.out_features() - column);
    product.depth = weight.in_features();
    product.dtype = args.x.dtype;
    product.y_dtype = args.y.dtype;
    product.x_stride = args.x.row_stride;
    product.panels = dense.Dequantize(panel, end, quantized);
    product.bias = weight.bias() == nullptr ? nullptr : weight.bias() + column;
    product.y_stride = args.y.row_stride;
    constexpr int64_t kRowsAtATime = 256;  // what a thread copies of y stays in its cache
    for (int64_t row = 0; row < args.x.rows && is_fast; row += kRowsAtATime) {
      product.rows = std::min(kRowsAtATime, args.x.rows - row);
      product.x = args.x.RowData(row);
      product.y = args.y.Columns(column, product.cols).RowData(row);
      if (!RunOneDnnProduct(product)) is_fast = false;
    }
  });
  return is_fast;
}

void RunQuantized(ComputePool& pool, const LinearArgs& args, const HostQuantizedWeight& weight,
                  const QuantizedKernels& quantized, const LinearKernels& kernels, bool use_onednn) {
  if (use_onednn && RunDequantizedWithOneDnn(pool, args, weight, quantized)) return;
  const bool is_f32 = args.x.dtype == DType::kF32;
  const int64_t rows = args.x.rows;
  if (!is_f32 &&
      rows <= (weight.layout().bits == 4 ? quantized.max_rows_integers : quantized.max_rows_integers_int8))
    return RunIntegers(pool, args, weight, quantized, kernels.max_group_rows);
  if (rows <= (is_f32 ? quantized.max_rows_f32 : quantized.max_rows_bf16))
    return RunCodes(pool, args, weight, quantized, kernels.max_group_rows);
  ForEachLinearRange(
      pool, rows, weight.out_features(), static_cast<int64_t>(weight.size_bytes()), kernels.max_group_rows,
      [&](const LinearRange& range) { RunDequantized(args, weight, range, quantized, kernels); });
}

template <typename X>
void GatherColumns(ComputePool& pool, const MatrixView& x, std::span<const int32_t> order, X* to) {
  ForEachRow(pool, x.rows, x.cols, [&](int64_t row) {
    const X* from = static_cast<const X*>(x.RowData(row));
    X* out = to + row * x.cols;
    for (const int32_t column : order) *out++ = from[column];
  });
}

// args with the columns of x in the order of the weight's codes. memory: keeps them.
LinearArgs WithOrderedColumns(ComputePool& pool, const LinearArgs& args, std::span<const int32_t> order,
                              std::vector<float>* memory) {
  const auto count = static_cast<size_t>(args.x.rows * args.x.cols);
  memory->resize(std::max(memory->size(), count));
  if (args.x.dtype == DType::kF32) {
    GatherColumns(pool, args.x, order, memory->data());
  } else {
    GatherColumns(pool, args.x, order, reinterpret_cast<bf16_t*>(memory->data()));
  }
  LinearArgs ordered = args;
  ordered.x = MatrixView::Dense(memory->data(), args.x.dtype, args.x.rows, args.x.cols);
  return ordered;
}

}  // namespace

bool HostOps::KeepsQuantized(const WeightFormat& format, int64_t in_features, DType dtype) const {
  return (dtype == DType::kF32 || dtype == DType::kBF16) && HasQuantizedLayout(format, in_features);
}

Result<std::unique_ptr<QuantizedLinearWeight>> HostOps::CreateQuantizedWeight(
    const QuantizedWeightShape& shape, const WeightFormat& format) {
  return HostQuantizedWeight::Create(shape, format, &weight_arena_);
}

void HostOps::LinearQuantized(Stream& stream, const LinearArgs& args, const HostQuantizedWeight& weight) {
  // Sums of codes need no dequantized weights, but a tile of sums has to leave for the scales of every group.
  constexpr int64_t kDequantizeRows = 17;
  const bool use_onednn = UseOneDnn(weight.dtype(), args.x.rows) &&
                          (args.x.rows >= kDequantizeRows || options_.onednn == OneDnnUse::kAlways);
  AsHostStream(stream).Enqueue([args, &weight, use_onednn,
                                &quantized = weight.layout().is_fp8 ? fp8_ : quantized_,
                                &kernels = linear_](ComputePool& pool) {
    const std::span<const int32_t> order = weight.column_order();
    if (order.empty()) return RunQuantized(pool, args, weight, quantized, kernels, use_onednn);
    // Of the stream's thread: it runs one product at a time.
    thread_local std::vector<float> memory;
    RunQuantized(pool, WithOrderedColumns(pool, args, order, &memory), weight, quantized, kernels,
                 use_onednn);
  });
}

}  // namespace tandem
