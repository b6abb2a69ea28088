#include "load/mapped_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "load/quantized_blocks.h"
#include "load/required_tensors.h"

namespace tandem {
namespace {

// Where row `row` in Hugging Face's order lies in a tensor whose heads are stored interleaved.
int64_t StoredRow(int64_t row, int64_t head_rows) {
  const int64_t head = row / head_rows;
  const int64_t in_head = row % head_rows;
  const int64_t half = head_rows / 2;
  return head * head_rows + 2 * (in_head % half) + in_head / half;
}

// A row of a matrix in blocks of a type. row: in Hugging Face's order.
const uint8_t* RowData(const MappedTensor& tensor, int64_t row) {
  const BlockFormat& format = GetBlockFormat(*tensor.type);
  const int64_t row_bytes = tensor.info.cols / format.block_elements * format.block_bytes;
  const int64_t stored =
      tensor.num_permuted_heads == 0 ? row : StoredRow(row, tensor.info.rows / tensor.num_permuted_heads);
  return tensor.data + stored * row_bytes;
}

WeightFormat FormatOf(const MappedTensor& tensor) {
  if (tensor.coded) return tensor.coded->format();
  return tensor.type ? WeightFormatOf(*tensor.type) : WeightFormat();
}

Status CheckReadable(const std::string& path, const MappedTensor& tensor) {
  if (tensor.type || tensor.coded) return {};
  return MakeError(ErrorCode::kUnsupported, "{}: tensor '{}' is stored as {}, which is not supported", path,
                   tensor.info.name, tensor.info.stored_type);
}

// dst: [num_rows, cols] of dtype, the columns of the weight in their own order.
Status ReadCodedRows(const CodedWeight& weight, int64_t row_begin, int64_t num_rows, DType dtype, void* dst) {
  QuantizedRows rows;
  TANDEM_RETURN_IF_ERROR(weight.Read(row_begin, num_rows, &rows));
  std::vector<float> values(rows.codes.size());
  DequantizeRows(rows, values.data());
  if (const std::vector<int32_t>& order = weight.column_order(); !order.empty()) {
    std::vector<float> row(order.size());
    for (int64_t i = 0; i < num_rows; ++i) {
      float* to = values.data() + i * rows.cols;
      std::copy_n(to, row.size(), row.begin());
      for (size_t j = 0; j < row.size(); ++j) to[order[j]] = row[j];
    }
  }
  ConvertElements(GgmlType::kF32, reinterpret_cast<const uint8_t*>(values.data()),
                  static_cast<int64_t>(values.size()), dtype, dst);
  return {};
}

}  // namespace

MappedCheckpoint::MappedCheckpoint(const std::string& path, CheckpointContents contents)
    : path_(path), contents_(std::move(contents)) {
  infos_.reserve(contents_.tensors.size());
  for (size_t i = 0; i < contents_.tensors.size(); ++i) {
    const MappedTensor& tensor = contents_.tensors[i];
    infos_.push_back(tensor.info);
    infos_.back().format = FormatOf(tensor);
    if (tensor.coded && !tensor.coded->column_order().empty())
      infos_.back().column_order = &tensor.coded->column_order();
    by_name_.emplace(contents_.tensors[i].info.name, i);
  }
}

Result<std::unique_ptr<Checkpoint>> MappedCheckpoint::Create(const std::string& path,
                                                             CheckpointContents contents) {
  std::unique_ptr<MappedCheckpoint> result(new MappedCheckpoint(path, std::move(contents)));
  if (result->by_name_.size() != result->infos_.size())
    return MakeError(ErrorCode::kMalformedFile, "{}: two tensors have the same name", path);
  TANDEM_RETURN_IF_ERROR(result->CheckTensors());
  return std::unique_ptr<Checkpoint>(std::move(result));
}

Status MappedCheckpoint::CheckTensors() const {
  for (const RequiredTensor& wanted : RequiredTensors(contents_.config)) {
    const auto found = by_name_.find(wanted.name);
    if (found == by_name_.end()) {
      return MakeError(ErrorCode::kMalformedFile, "{}: tensor '{}' of shape [{}, {}] is missing", path_,
                       wanted.name, wanted.rows, wanted.cols);
    }
    const MappedTensor& tensor = contents_.tensors[found->second];
    if (tensor.info.rows != wanted.rows || tensor.info.cols != wanted.cols) {
      return MakeError(ErrorCode::kMalformedFile,
                       "{}: tensor '{}' has shape [{}, {}], the configuration wants [{}, {}]", path_,
                       wanted.name, tensor.info.rows, tensor.info.cols, wanted.rows, wanted.cols);
    }
    TANDEM_RETURN_IF_ERROR(CheckReadable(path_, tensor));
  }
  return {};
}

const TensorInfo* MappedCheckpoint::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &infos_[found->second];
}

Result<const MappedTensor*> MappedCheckpoint::FindRows(const std::string& name, int64_t row_begin,
                                                       int64_t num_rows) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return MakeError(ErrorCode::kNotFound, "{}: no tensor '{}'", path_, name);
  const MappedTensor& tensor = contents_.tensors[found->second];
  const int64_t rows = tensor.info.rows;
  if (row_begin < 0 || num_rows < 0 || row_begin > rows || num_rows > rows - row_begin) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}: tensor '{}' has {} rows, {} from row {} were asked for", path_, name, rows,
                     num_rows, row_begin);
  }
  TANDEM_RETURN_IF_ERROR(CheckReadable(path_, tensor));
  return &tensor;
}

Status MappedCheckpoint::ReadColumns(const std::string& name, int64_t row_begin, int64_t num_rows,
                                     const ColumnRange& columns, DType dtype, void* dst) const {
  TANDEM_ASSIGN_OR_RETURN(const MappedTensor* const found, FindRows(name, row_begin, num_rows));
  const int64_t cols = found->info.cols;
  if (!IsFloatType(dtype)) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: tensor '{}' cannot be read as {}", path_, name,
                     DTypeName(dtype));
  }
  auto* const out = static_cast<uint8_t*>(dst);
  const bool all = columns == kAllColumns || columns == ColumnRange{.begin = 0, .count = cols};
  if (!all && (columns.begin < 0 || columns.count < 0 || columns.count > cols - columns.begin)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}: tensor '{}' has {} columns, {} from column {} were asked for", path_, name, cols,
                     columns.count, columns.begin);
  }
  if (num_rows == 0 || cols == 0) return {};
  return all ? ReadWhole(*found, row_begin, num_rows, dtype, out)
             : ReadPart(*found, row_begin, num_rows, columns, dtype, out);
}

Status MappedCheckpoint::ReadWhole(const MappedTensor& tensor, int64_t row_begin, int64_t num_rows,
                                   DType dtype, uint8_t* dst) {
  const int64_t cols = tensor.info.cols;
  if (tensor.coded) return ReadCodedRows(*tensor.coded, row_begin, num_rows, dtype, dst);
  const auto element_bytes = static_cast<int64_t>(DTypeSize(dtype));
  if (tensor.num_permuted_heads == 0) {
    ConvertElements(*tensor.type, RowData(tensor, row_begin), num_rows * cols, dtype, dst);
  } else if (tensor.info.rows == 1) {
    std::vector<uint8_t> stored(static_cast<size_t>(cols * element_bytes));
    ConvertElements(*tensor.type, tensor.data, cols, dtype, stored.data());
    for (int64_t i = 0; i < cols; ++i) {
      const int64_t from = StoredRow(i, cols / tensor.num_permuted_heads);
      std::memcpy(dst + i * element_bytes, stored.data() + from * element_bytes,
                  static_cast<size_t>(element_bytes));
    }
  } else {
    for (int64_t i = 0; i < num_rows; ++i) {
      ConvertElements(*tensor.type, RowData(tensor, row_begin + i), cols, dtype,
                      dst + i * cols * element_bytes);
    }
  }
  return {};
}

Status MappedCheckpoint::ReadPart(const MappedTensor& tensor, int64_t row_begin, int64_t num_rows,
                                  const ColumnRange& columns, DType dtype, uint8_t* dst) {
  const auto part_bytes = static_cast<size_t>(columns.count) * DTypeSize(dtype);
  const bool is_vector = tensor.info.rows == 1;
  if (tensor.type && !is_vector) {
    const BlockFormat& format = GetBlockFormat(*tensor.type);
    if (columns.begin % format.block_elements == 0 && columns.count % format.block_elements == 0) {
      const int64_t offset = columns.begin / format.block_elements * format.block_bytes;
      for (int64_t i = 0; i < num_rows; ++i) {
        ConvertElements(*tensor.type, RowData(tensor, row_begin + i) + offset, columns.count, dtype,
                        dst + static_cast<size_t>(i) * part_bytes);
      }
      return {};
    }
  }
  std::vector<uint8_t> row(static_cast<size_t>(tensor.info.cols) * DTypeSize(dtype));
  for (int64_t i = 0; i < num_rows; ++i) {
    TANDEM_RETURN_IF_ERROR(ReadWhole(tensor, row_begin + i, 1, dtype, row.data()));
    std::memcpy(dst + static_cast<size_t>(i) * part_bytes,
                row.data() + static_cast<size_t>(columns.begin) * DTypeSize(dtype), part_bytes);
  }
  return {};
}

Status MappedCheckpoint::ReadStoredCodes(const MappedTensor& tensor, int64_t row_begin, int64_t num_rows,
                                         QuantizedRows* rows) const {
  if (tensor.coded) return tensor.coded->Read(row_begin, num_rows, rows);
  rows->Resize(WeightFormatOf(*tensor.type), num_rows, tensor.info.cols);
  for (int64_t i = 0; i < num_rows; ++i) SplitBlocks(*tensor.type, RowData(tensor, row_begin + i), i, rows);
  return {};
}

Status MappedCheckpoint::ReadQuantizedRows(const std::string& name, int64_t row_begin, int64_t num_rows,
                                           const WeightFormat& format, QuantizedRows* rows) const {
  TANDEM_ASSIGN_OR_RETURN(const MappedTensor* const found, FindRows(name, row_begin, num_rows));
  const MappedTensor& tensor = *found;
  const int64_t cols = tensor.info.cols;
  if (format.group_size <= 0 || cols % format.group_size != 0) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}: tensor '{}' has rows of {}, not a multiple of groups of {}", path_, name, cols,
                     format.group_size);
  }
  const WeightFormat stored = FormatOf(tensor);
  if (CommonWeightFormat(stored, format) == format) {
    TANDEM_RETURN_IF_ERROR(ReadStoredCodes(tensor, row_begin, num_rows, rows));
    if (format != stored) *rows = WidenRows(*rows, format);
  } else {
    std::vector<float> values(static_cast<size_t>(num_rows * cols));
    TANDEM_RETURN_IF_ERROR(ReadRows(name, row_begin, num_rows, DType::kF32, values.data()));
    QuantizeRows(values.data(), num_rows, cols, format, rows);
  }
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(rows->scales, is_finite) || !std::ranges::all_of(rows->minimums, is_finite)) {
    return MakeError(ErrorCode::kMalformedFile, "{}: tensor '{}' has a scale that is not finite", path_,
                     name);
  }
  return {};
}

}  // namespace tandem
