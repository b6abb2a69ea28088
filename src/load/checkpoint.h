// One opened checkpoint: a GGUF file or a Hugging Face folder, behind one interface.
//
// Tensors go by their Hugging Face names ("model.layers.0.self_attn.q_proj.weight") whatever the file calls
// them, row-major [rows, cols], Q and K rows in Hugging Face's order (GGUF files of the llama
// architecture permute them for interleaved RoPE: undone here).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/quantized_rows.h"
#include "base/result.h"
#include "base/weight_format.h"
#include "load/model_config.h"
#include "load/text_side.h"

namespace tandem {

struct TensorInfo {
  std::string name;         // Hugging Face name
  std::string stored_type;  // "Q4_1", "BF16", ...
  int64_t rows = 0;         // 1 for a vector
  int64_t cols = 0;
  uint64_t stored_bytes = 0;
  WeightFormat format;  // in which ReadQuantizedRows loses nothing
  // Not null: groups of the format are of columns that are not neighbours, and ReadQuantizedRows in a format
  // that holds it gives column (*column_order)[i] of the weight as column i. Lives as long as the checkpoint.
  const std::vector<int32_t>* column_order = nullptr;
};

// Columns [begin, begin + count) of a tensor.
struct ColumnRange {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const ColumnRange&) const = default;
};
inline constexpr ColumnRange kAllColumns = {.begin = 0, .count = -1};

class Checkpoint {
 public:
  // path: a .gguf file or a folder with config.json. Reads headers and maps the files; no tensor data is
  // read. Errors: kNotFound, kMalformedFile (names the file, the field and the offset), kUnsupported.
  // rope_scaling, if any, takes the place of the model's (OverrideRopeScaling).
  static Result<std::unique_ptr<Checkpoint>> Open(const std::string& path,
                                                  const std::optional<RopeScaling>& rope_scaling = {});

  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const TextSide& text_side() const = 0;
  virtual const std::string& path() const = 0;

  // All tensors, in file order.
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // nullptr if the checkpoint has no tensor of this name.
  virtual const TensorInfo* Find(const std::string& name) const = 0;

  // Dequantizes or converts rows [row_begin, row_begin + num_rows) to dtype (kF32, kBF16 or kF16) at dst,
  // densely packed [num_rows, cols], host memory. Thread-safe: loaders call it from several threads.
  // Errors: kNotFound; kInvalidArgument if the rows are outside the tensor; kMalformedFile for scales and
  // codes of a folder's quantized weights that are no numbers or zero.
  Status ReadRows(const std::string& name, int64_t row_begin, int64_t num_rows, DType dtype,
                  void* dst) const {
    return ReadColumns(name, row_begin, num_rows, kAllColumns, dtype, dst);
  }
  // Of those rows the columns of the range: dst [num_rows, columns.count]. Errors: kInvalidArgument too if
  // the columns are outside the tensor.
  virtual Status ReadColumns(const std::string& name, int64_t row_begin, int64_t num_rows,
                             const ColumnRange& columns, DType dtype, void* dst) const = 0;

  // The same rows as codes of a quantized format: that of the tensor or one that holds it
  // (CommonWeightFormat); values of others, floats among them, are rounded to the nearest codes
  // (QuantizeRows).
  // Thread-safe. Errors: as ReadRows; kInvalidArgument if the tensor's rows are no multiple of the groups;
  // kMalformedFile if a scale is not finite, or is zero in a folder.
  virtual Status ReadQuantizedRows(const std::string& name, int64_t row_begin, int64_t num_rows,
                                   const WeightFormat& format, QuantizedRows* rows) const = 0;
};

}  // namespace tandem
