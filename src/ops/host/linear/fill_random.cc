// Random weights: FillRandom of the ops and of both kinds of weights.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/all_cores.h"
#include "base/check.h"
#include "base/hashed_uniform.h"
#include "base/quantized_rows.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/linear/linear_weight.h"
#include "ops/host/linear/quantized_weight.h"
#include "ops/host/row_tasks.h"

namespace tandem {
namespace {

// row: of the matrix that is filled, which has num_columns columns. to: that row.
void FillRow(DType dtype, int64_t row, int64_t num_columns, const RandomValues& values, void* to) {
  const MatrixCut* const part = values.part;
  const int64_t first =
      part == nullptr ? row * num_columns : part->RowInMatrix(row) * part->num_columns + part->columns.begin;
  const auto value = [&](size_t i) {
    return HashedUniform(values.seed, static_cast<uint64_t>(first) + i, values.bound);
  };
  const auto count = static_cast<size_t>(num_columns);
  if (dtype == DType::kF32) {
    for (size_t i = 0; i < count; ++i) static_cast<float*>(to)[i] = value(i);
  } else {
    for (size_t i = 0; i < count; ++i) static_cast<bf16_t*>(to)[i] = F32ToBF16(value(i));
  }
}

// Calls make(first column, number of columns, memory of the thread) for every panel, on all cores: a panel at
// a time, so that threads write to different cache lines.
template <typename Memory, typename Make>
void ForEachPanel(int64_t out_features, const Make& make) {
  const int64_t num_panels = (out_features + kPanelColumns - 1) / kPanelColumns;
  ForEachOnAllCores<Memory>(num_panels, [&](int64_t panel, Memory* memory) {
    const int64_t begin = panel * kPanelColumns;
    make(begin, std::min<int64_t>(kPanelColumns, out_features - begin), memory);
  });
}

}  // namespace

void HostOps::FillRandom(Stream& stream, const MatrixView& matrix, const RandomValues& values) {
  TANDEM_CHECK(
      matrix.row_stride == matrix.cols && (matrix.dtype == DType::kF32 || matrix.dtype == DType::kBF16),
      "fill_random: [{}, {}] {} with a row stride of {}", matrix.rows, matrix.cols, DTypeName(matrix.dtype),
      matrix.row_stride);
  if (values.part != nullptr) values.part->CheckFills(matrix.rows, matrix.cols);
  AsHostStream(stream).Enqueue([matrix, values](ComputePool& pool) {
    ForEachRow(pool, matrix.rows, matrix.cols,
               [&](int64_t row) { FillRow(matrix.dtype, row, matrix.cols, values, matrix.RowData(row)); });
  });
}

void HostLinearWeight::FillRandom(const RandomValues& values) {
  if (values.part != nullptr) values.part->CheckFills(out_features_, in_features_);
  const size_t row_bytes = static_cast<size_t>(in_features_) * DTypeSize(dtype_);
  ForEachPanel<std::vector<std::byte>>(
      out_features_, [&](int64_t begin, int64_t count, std::vector<std::byte>* rows) {
        rows->resize(row_bytes * kPanelColumns);
        for (int64_t i = 0; i < count; ++i) {
          FillRow(dtype_, begin + i, in_features_, values, rows->data() + static_cast<size_t>(i) * row_bytes);
        }
        LoadRows(begin, count, rows->data());
      });
}

void HostQuantizedWeight::FillRandom(const RandomValues& values) {
  TANDEM_CHECK(values.part == nullptr, "codes depend on whole rows");
  ForEachPanel<QuantizedRows>(out_features(), [&](int64_t begin, int64_t count, QuantizedRows* rows) {
    HashedRows(values.seed, values.bound, begin, count, in_features(), format_, rows);
    LoadQuantizedRows(begin, *rows);
  });
}

}  // namespace tandem
