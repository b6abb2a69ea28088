// Hugging Face folders: config.json, safetensors in one file or in shards, tokenizer files beside them.
#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "load/folder_files.h"
#include "load/hf_config.h"
#include "load/json_fields.h"
#include "load/mapped_checkpoint.h"
#include "load/pooling_config.h"
#include "load/quantization_config.h"
#include "load/quantized_modules.h"
#include "load/safetensors_file.h"
#include "load/text_side.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;

// A file name of the index must be a name in its folder, nothing that leads elsewhere. (What lies under the
// name may be a symbolic link: the Hugging Face cache is made of them.)
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

MappedTensor ToMappedTensor(const SafetensorsTensor& stored) {
  MappedTensor tensor;
  tensor.info.name = stored.name;
  tensor.info.stored_type = std::string(stored.dtype);
  // Vectors and scalars are one row; the first dimension of anything deeper counts the rows.
  const size_t first_column_dim = stored.shape.size() < 2 ? 0 : 1;
  tensor.info.rows = first_column_dim == 0 ? 1 : stored.shape.front();
  tensor.info.cols = 1;
  for (size_t d = first_column_dim; d < stored.shape.size(); ++d) tensor.info.cols *= stored.shape[d];
  tensor.info.stored_bytes = stored.num_bytes;
  tensor.type = stored.type;
  tensor.data = stored.data;
  return tensor;
}

// Opened safetensors files and their tensors, in file order.
struct Weights {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::vector<SafetensorsTensor> tensors;
};

// Which tensors the index places in which shard.
Result<std::map<std::string, std::set<std::string>>> ReadIndex(const std::string& index_path) {
  TANDEM_ASSIGN_OR_RETURN(const json index, ReadJsonObject(index_path, kMaxIndexBytes));
  const JsonFields fields(index, index_path);
  TANDEM_ASSIGN_OR_RETURN(const JsonFields weight_map, fields.Object("weight_map"));
  std::map<std::string, std::set<std::string>> tensors_by_shard;
  for (const auto& [tensor, shard] : fields.Find("weight_map")->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return MakeError(ErrorCode::kMalformedFile,
                       "{}: tensor '{}' is placed in {}, not a file name in the folder", weight_map.where(),
                       tensor.substr(0, 200), shard.dump().substr(0, 200));
    }
    tensors_by_shard[shard.get_ref<const std::string&>()].insert(tensor);
  }
  if (tensors_by_shard.empty())
    return MakeError(ErrorCode::kMalformedFile, "{} is no tensor", weight_map.where());
  return tensors_by_shard;
}

Result<Weights> OpenShards(const std::string& folder, const std::string& index_path) {
  TANDEM_ASSIGN_OR_RETURN(const auto tensors_by_shard, ReadIndex(index_path));
  Weights weights;
  for (const auto& [shard, wanted] : tensors_by_shard) {
    auto opened = SafetensorsFile::Open(JoinPath(folder, shard));
    if (!opened.ok()) {
      if (opened.error().code != ErrorCode::kNotFound) return opened.error();
      return MakeError(ErrorCode::kNotFound, "{}: shard '{}' is missing, {} names it", folder, shard,
                       index_path);
    }
    std::unique_ptr<SafetensorsFile> file = std::move(opened).value();
    // A tensor that the index places elsewhere, or nowhere, does not count.
    std::set<std::string> missing = wanted;
    for (const SafetensorsTensor& tensor : file->tensors()) {
      if (missing.erase(tensor.name) > 0) weights.tensors.push_back(tensor);
    }
    if (!missing.empty()) {
      return MakeError(ErrorCode::kMalformedFile, "{}: shard '{}' has no tensor '{}', {} places it there",
                       folder, shard, missing.begin()->substr(0, 200), index_path);
    }
    weights.files.push_back(std::move(file));
  }
  return weights;
}

Result<Weights> OpenWeights(const std::string& folder) {
  const std::string single = JoinPath(folder, "model.safetensors");
  const std::string index = JoinPath(folder, "model.safetensors.index.json");
  if (!FileExists(single)) {
    if (FileExists(index)) return OpenShards(folder, index);
    return MakeError(ErrorCode::kNotFound, "{}: neither model.safetensors nor model.safetensors.index.json",
                     folder);
  }
  Weights weights;
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(single));
  weights.tensors = file->tensors();
  weights.files.push_back(std::move(file));
  return weights;
}

bool HasTensor(const std::vector<MappedTensor>& tensors, std::string_view name) {
  return std::ranges::any_of(tensors, [&](const MappedTensor& tensor) { return tensor.info.name == name; });
}

// Folders that make embeddings are often saved without the class that has the head: their tensors lack the
// prefix, and there is no lm_head.
Status CompleteForEmbeddings(const std::string& folder, CheckpointContents* contents) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<Pooling> pooling, ReadFolderPooling(folder));
  ModelConfig& config = contents->config;
  if (pooling) config.pooling = *pooling;
  if (HasTensor(contents->tensors, "embed_tokens.weight")) {
    for (MappedTensor& tensor : contents->tensors) {
      if (tensor.info.name != "lm_head.weight") tensor.info.name.insert(0, "model.");
    }
  }
  if (config.tie_word_embeddings || HasTensor(contents->tensors, "lm_head.weight")) return {};
  if (!IsSentenceTransformer(folder)) return {};
  config.generates = false;
  config.tie_word_embeddings = true;
  return {};
}

}  // namespace

Result<CheckpointContents> ReadFolderCheckpoint(const std::string& folder) {
  const std::string config_path = JoinPath(folder, "config.json");
  if (!FileExists(config_path)) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: no config.json; a model is a Hugging Face folder or a .gguf file", folder);
  }
  TANDEM_ASSIGN_OR_RETURN(const json config, ReadJsonObject(config_path, kMaxConfigBytes));

  CheckpointContents contents;
  TANDEM_ASSIGN_OR_RETURN(contents.config, ParseHfConfig(config, config_path));
  TANDEM_ASSIGN_OR_RETURN(const std::optional<QuantizationConfig> quantization,
                          ReadQuantizationConfig(JsonFields(config, config_path)));
  TANDEM_ASSIGN_OR_RETURN(contents.text_side, ReadFolderTextSide(folder));
  TANDEM_ASSIGN_OR_RETURN(Weights weights, OpenWeights(folder));
  if (quantization) {
    TANDEM_ASSIGN_OR_RETURN(contents.tensors, TakeQuantizedModules(*quantization, &weights.tensors));
  }
  std::ranges::transform(weights.tensors, std::back_inserter(contents.tensors), ToMappedTensor);
  TANDEM_RETURN_IF_ERROR(CompleteForEmbeddings(folder, &contents));
  contents.files =
      std::make_shared<const std::vector<std::unique_ptr<SafetensorsFile>>>(std::move(weights.files));
  return contents;
}

}  // namespace tandem
