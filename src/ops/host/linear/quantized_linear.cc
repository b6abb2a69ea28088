// Products with quantized weights: HostOps::LinearQuantized.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/linear/linear_split.h"
#include "ops/host/linear/quantized_weight.h"
#include "ops/host/row_tasks.h"

namespace tandem {
namespace {

QuantizedTile MakeTile(const LinearArgs& args, const HostQuantizedWeight& weight, const LinearRange& range,
                       const float* x_sums) {
  QuantizedTile tile;
  tile.x = args.x.RowData(range.row);
  tile.x_stride = args.x.row_stride;
  tile.layout = weight.layout();
  if (x_sums != nullptr) tile.x_sums = x_sums + range.row * tile.layout.num_groups;
  tile.num_rows = range.num_rows;
  tile.panels = weight.panels();
  tile.factors = weight.factors();
  tile.first_unit = range.first_unit;
  tile.end_unit = range.end_unit;
  tile.bias = weight.bias();
  tile.y = args.y.RowData(range.row);
  tile.y_stride = args.y.row_stride;
  tile.out_features = weight.out_features();
  return tile;
}

// Panel by panel: dequantized to this thread's memory, then multiplied as weights that never were quantized.
void RunDequantized(const LinearArgs& args, const HostQuantizedWeight& weight, const LinearRange& range,
                    const QuantizedKernels& quantized, const LinearKernels& kernels) {
  constexpr int64_t kUnitsPerPanel = kPanelColumns / kColumnsPerUnit;
  const QuantizedLayout& layout = weight.layout();
  thread_local std::vector<float> memory;
  const int64_t values = weight.in_features() * kPanelColumns + 16;
  memory.resize(std::max(memory.size(), static_cast<size_t>(values)));
  const auto misalignment = reinterpret_cast<uintptr_t>(memory.data()) % 64;
  float* dense = memory.data() + (64 - misalignment) % 64 / sizeof(float);
  for (int64_t unit = range.first_unit; unit < range.end_unit;) {
    const int64_t panel = unit / kUnitsPerPanel;
    const int64_t column = panel * kPanelColumns;
    const std::byte* codes = weight.panels() + panel * layout.panel_bytes;
    const float* factors = weight.factors() + column;
    LinearTile tile;
    tile.x = args.x.RowData(range.row);
    tile.x_stride = args.x.row_stride;
    tile.num_rows = range.num_rows;
    tile.panels = dense;
    tile.in_features = weight.in_features();
    tile.first_unit = unit - panel * kUnitsPerPanel;
    tile.end_unit = std::min(range.end_unit - panel * kUnitsPerPanel, kUnitsPerPanel);
    tile.bias = weight.bias() == nullptr ? nullptr : weight.bias() + column;
    tile.out_features = std::min(weight.out_features() - column, kPanelColumns);
    tile.y = args.y.Columns(column, tile.out_features).RowData(range.row);
    tile.y_stride = args.y.row_stride;
    if (args.x.dtype == DType::kF32) {
      quantized.dequantize_f32(layout, codes, factors, dense);
      kernels.f32(tile);
    } else {
      quantized.dequantize_bf16(layout, codes, factors, reinterpret_cast<bf16_t*>(dense));
      (args.y.dtype == DType::kF32 ? kernels.bf16_to_f32 : kernels.bf16_to_bf16)(tile);
    }
    unit = (panel + 1) * kUnitsPerPanel;
  }
}

void RunQuantized(ComputePool& pool, const LinearArgs& args, const HostQuantizedWeight& weight,
                  const QuantizedKernels& quantized, const LinearKernels& kernels) {
  const bool is_f32 = args.x.dtype == DType::kF32;
  const bool from_codes = args.x.rows <= (is_f32 ? quantized.max_rows_f32 : quantized.max_rows_bf16);
  const int64_t num_groups = weight.layout().num_groups;
  constexpr int64_t kSpareRows = 15;  // QuantizedTile::x_sums
  // Filled by this thread's tasks, read by all: a vector of the product, not of the thread.
  std::vector<float> x_sums;
  if (from_codes && !is_f32) {
    x_sums.resize(static_cast<size_t>((args.x.rows + kSpareRows) * num_groups));
    ForEachRow(pool, args.x.rows, args.x.cols, [&](int64_t row) {
      quantized.sum_groups(static_cast<const uint16_t*>(args.x.RowData(row)), weight.layout().group_size,
                           num_groups, x_sums.data() + row * num_groups);
    });
  }
  const float* sums = x_sums.empty() ? nullptr : x_sums.data();
  ForEachLinearRange(pool, args.x.rows, weight.out_features(), static_cast<int64_t>(weight.size_bytes()),
                     kernels.max_group_rows, [&](const LinearRange& range) {
                       if (!from_codes) return RunDequantized(args, weight, range, quantized, kernels);
                       const QuantizedTile tile = MakeTile(args, weight, range, sums);
                       if (is_f32) return quantized.f32(tile);
                       (args.y.dtype == DType::kF32 ? quantized.bf16_to_f32 : quantized.bf16_to_bf16)(tile);
                     });
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

Result<std::unique_ptr<QuantizedLinearWeight>> HostOps::CreateQuantizedWeight(const LinearShape& shape,
                                                                              const WeightFormat& format) {
  return HostQuantizedWeight::Create(shape, format, &weight_arena_);
}

void HostOps::LinearQuantized(Stream& stream, const LinearArgs& args, const HostQuantizedWeight& weight) {
  AsHostStream(stream).Enqueue(
      [args, &weight, &quantized = quantized_, &kernels = linear_](ComputePool& pool) {
        const std::span<const int32_t> order = weight.column_order();
        if (order.empty()) return RunQuantized(pool, args, weight, quantized, kernels);
        // Of the stream's thread: it runs one product at a time.
        thread_local std::vector<float> memory;
        RunQuantized(pool, WithOrderedColumns(pool, args, order, &memory), weight, quantized, kernels);
      });
}

}  // namespace tandem
