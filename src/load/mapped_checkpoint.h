// The one implementation of Checkpoint: a table of tensors in mapped files. Readers of the formats fill it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "load/checkpoint.h"
#include "load/coded_weight.h"
#include "load/quantization.h"

namespace tandem {

struct MappedTensor {
  TensorInfo info;
  std::optional<GgmlType> type;  // none: coded, or stored as something that is not converted
  const uint8_t* data = nullptr;
  std::shared_ptr<const CodedWeight> coded;  // instead of type and data
  // Not 0: the rows (of a vector: the values) of each head are stored interleaved, first and second half of
  // the head alternating. A reader gets them back in order.
  int64_t num_permuted_heads = 0;
};

struct CheckpointContents {
  ModelConfig config;
  TextSide text_side;
  std::vector<MappedTensor> tensors;
  std::shared_ptr<const void> files;  // keeps the mappings alive
};

Result<CheckpointContents> ReadGgufCheckpoint(const std::string& path);
// folder: with config.json and either model.safetensors or model.safetensors.index.json and its shards.
Result<CheckpointContents> ReadFolderCheckpoint(const std::string& folder);

class MappedCheckpoint final : public Checkpoint {
 public:
  // Checks that every tensor that the configuration needs is there with its shape. Errors: kMalformedFile
  // (names the tensor, the wanted and the found shape), kUnsupported (its stored type).
  static Result<std::unique_ptr<Checkpoint>> Create(const std::string& path, CheckpointContents contents);

  const ModelConfig& config() const override { return contents_.config; }
  const TextSide& text_side() const override { return contents_.text_side; }
  const std::string& path() const override { return path_; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* Find(const std::string& name) const override;
  Status ReadColumns(const std::string& name, int64_t row_begin, int64_t num_rows, const ColumnRange& columns,
                     DType dtype, void* dst) const override;
  Status ReadQuantizedRows(const std::string& name, int64_t row_begin, int64_t num_rows,
                           const WeightFormat& format, QuantizedRows* rows) const override;

 private:
  MappedCheckpoint(const std::string& path, CheckpointContents contents);
  Status CheckTensors() const;
  // The tensor, if it has these rows and they can be converted.
  Result<const MappedTensor*> FindRows(const std::string& name, int64_t row_begin, int64_t num_rows) const;
  // Of rows that the tensor has, all columns, or some of them.
  static Status ReadWhole(const MappedTensor& tensor, int64_t row_begin, int64_t num_rows, DType dtype,
                          uint8_t* dst);
  static Status ReadPart(const MappedTensor& tensor, int64_t row_begin, int64_t num_rows,
                         const ColumnRange& columns, DType dtype, uint8_t* dst);
  // Rows as they are stored, in the format of the tensor.
  Status ReadStoredCodes(const MappedTensor& tensor, int64_t row_begin, int64_t num_rows,
                         QuantizedRows* rows) const;

  std::string path_;
  CheckpointContents contents_;
  std::vector<TensorInfo> infos_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys view the names of contents_.tensors
};

}  // namespace tandem
