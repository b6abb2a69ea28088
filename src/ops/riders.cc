#include "ops/riders.h"

#include "base/check.h"
#include "ops/ops.h"

namespace tandem {
namespace {

bool HasShape(const MatrixView& matrix, DType dtype, int64_t rows, int64_t cols) {
  return matrix.data != nullptr && matrix.dtype == dtype && matrix.rows >= rows && matrix.cols == cols;
}

void CheckGroup(const RiderGroup& group, const RiderCapacity& capacity) {
  const int64_t rows = group.residual.rows;
  const int64_t last_boundary = capacity.num_boundaries - 2;
  const auto check = [&](const MatrixView& matrix, DType dtype, int64_t cols, const char* what) {
    TANDEM_CHECK(HasShape(matrix, dtype, rows, cols) && matrix.rows == rows && matrix.row_stride == cols,
                 "riders of boundary {}: {} [{}, {}] {}, stride {}, wanted [{}, {}] {}, dense",
                 group.boundary, what, matrix.rows, matrix.cols, DTypeName(matrix.dtype), matrix.row_stride,
                 rows, cols, DTypeName(dtype));
  };
  TANDEM_CHECK(
      group.boundary >= -1 && group.boundary <= last_boundary && rows > 0 && group.positions != nullptr,
      "riders of boundary {}: the last is {}; {} rows", group.boundary, last_boundary, rows);
  check(group.residual, DType::kF32, capacity.hidden, "residual");
  const bool enters = group.boundary == -1;
  TANDEM_CHECK((group.done == nullptr) == enters && (group.attention_out.data == nullptr) == enters,
               "riders of boundary {}: attention_out belongs to boundaries from 0 on", group.boundary);
  if (!enters) check(group.attention_out, capacity.dtype, capacity.q_width, "attention_out");
  const bool leaves = group.boundary == last_boundary;
  TANDEM_CHECK((group.ready == nullptr) == leaves && (group.qkv.data == nullptr) == leaves,
               "riders of boundary {}: qkv belongs to boundaries before {}", group.boundary, last_boundary);
  if (!leaves) check(group.qkv, capacity.product_dtype, capacity.qkv_width, "qkv");
}

void CheckRows(const RiderArgs& args, const RiderCapacity& capacity) {
  TANDEM_CHECK(args.boundary >= -1 && args.boundary <= capacity.num_boundaries - 2 && args.row_begin >= 0 &&
                   args.num_rows >= 0,
               "riders: boundary {} of {}, rows [{}, +{})", args.boundary, capacity.num_boundaries,
               args.row_begin, args.num_rows);
}

void CheckMatrix(const RiderArgs& args, const MatrixView& matrix, DType dtype, int64_t cols,
                 const char* what) {
  TANDEM_CHECK(args.num_rows == 0 || HasShape(matrix, dtype, args.row_begin + args.num_rows, cols),
               "riders at boundary {}: {} [{}, {}] {}, rows [{}, +{}), wanted {} columns of {}",
               args.boundary, what, matrix.rows, matrix.cols, DTypeName(matrix.dtype), args.row_begin,
               args.num_rows, cols, DTypeName(dtype));
}

}  // namespace

void CheckRiderGroups(std::span<const RiderGroup> groups, const RiderCapacity& capacity) {
  TANDEM_CHECK(static_cast<int64_t>(groups.size()) <= capacity.max_groups, "{} groups of riders, at most {}",
               groups.size(), capacity.max_groups);
  int64_t boundary = -1;
  int64_t num_rows = 0;
  for (const RiderGroup& group : groups) {
    CheckGroup(group, capacity);
    TANDEM_CHECK(group.boundary >= boundary, "riders of boundary {} after those of {}", group.boundary,
                 boundary);
    num_rows = group.residual.rows + (group.boundary == boundary ? num_rows : 0);
    boundary = group.boundary;
    TANDEM_CHECK(num_rows <= capacity.max_rows, "{} riders at boundary {}, at most {}", num_rows, boundary,
                 capacity.max_rows);
  }
}

void CheckRiderGather(const RiderArgs& args, const RiderCapacity& capacity) {
  CheckRows(args, capacity);
  TANDEM_CHECK(args.num_rows == 0 || args.positions != nullptr, "riders at boundary {}: no positions",
               args.boundary);
  if (args.boundary == -1) return;
  CheckMatrix(args, args.residual, DType::kF32, capacity.hidden, "residual");
  CheckMatrix(args, args.attention_out, capacity.dtype, capacity.q_width, "attention_out");
}

void CheckRiderScatter(const RiderArgs& args, const RiderCapacity& capacity) {
  CheckRows(args, capacity);
  CheckMatrix(args, args.residual, DType::kF32, capacity.hidden, "residual");
  if (args.boundary == capacity.num_boundaries - 2) return;
  CheckMatrix(args, args.qkv, capacity.product_dtype, capacity.qkv_width, "qkv");
}

}  // namespace tandem
