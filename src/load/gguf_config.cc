#include "load/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "load/config_limits.h"
#include "load/mixture_families.h"
#include "load/rope_scaling.h"

namespace tandem {
namespace {

// Keys of one architecture: "llama.block_count" goes by "block_count" here.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  bool Has(std::string_view key) const { return file_.Has(prefix_ + std::string(key)); }

  // An integer. Per-layer arrays count as one integer if all layers have the same.
  Result<int64_t> Int(std::string_view key, int64_t min, int64_t max) const {
    const std::string name = prefix_ + std::string(key);
    int64_t value = 0;
    if (file_.IsArray(name)) {
      TANDEM_ASSIGN_OR_RETURN(const std::vector<int32_t> values, file_.GetInt32Array(name));
      if (values.empty()) return Wrong(name, "an empty array");
      if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end()) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: metadata '{}' differs by layer, which is not supported", file_.path(), name);
      }
      value = values.front();
    } else {
      TANDEM_ASSIGN_OR_RETURN(value, Required(name, file_.GetInt(name)));
    }
    if (value < min || value > max)
      return Wrong(name, fmt::format("{}, not an integer from {} to {}", value, min, max));
    return value;
  }

  Result<int64_t> IntOr(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
    return Has(key) ? Int(key, min, max) : Result<int64_t>(fallback);
  }

  Result<double> Float(std::string_view key, double min, double max) const {
    const std::string name = prefix_ + std::string(key);
    TANDEM_ASSIGN_OR_RETURN(const double value, Required(name, file_.GetFloat(name)));
    if (!(value >= min && value <= max))
      return Wrong(name, fmt::format("{}, not a number from {} to {}", value, min, max));
    return value;
  }

  Result<double> FloatOr(std::string_view key, double fallback, double min, double max) const {
    return Has(key) ? Float(key, min, max) : Result<double>(fallback);
  }

  Result<std::string> StringOr(std::string_view key, std::string_view fallback) const {
    TANDEM_ASSIGN_OR_RETURN(const std::string_view value,
                            file_.GetStringOr(prefix_ + std::string(key), fallback));
    return std::string(value);
  }

 private:
  Error Wrong(const std::string& name, std::string_view what) const {
    return MakeError(ErrorCode::kMalformedFile, "{}: metadata '{}' is {}", file_.path(), name, what);
  }

  // A model file without a key that every model file has is malformed.
  template <typename T>
  static Result<T> Required(const std::string& /*name*/, Result<T> result) {
    if (!result.ok() && result.error().code == ErrorCode::kNotFound)
      return Error{ErrorCode::kMalformedFile, result.error().message, {}};
    return result;
  }

  const GgufFile& file_;
  std::string prefix_;
};

Status ReadSizes(const GgufFile& file, const ArchitectureKeys& keys, ModelConfig& config) {
  TANDEM_ASSIGN_OR_RETURN(config.num_layers, keys.Int("block_count", 1, kMaxLayers));
  TANDEM_ASSIGN_OR_RETURN(config.hidden_size, keys.Int("embedding_length", 1, kMaxHiddenSize));
  TANDEM_ASSIGN_OR_RETURN(config.intermediate_size, keys.Int("feed_forward_length", 1, kMaxIntermediateSize));
  TANDEM_ASSIGN_OR_RETURN(config.num_heads, keys.Int("attention.head_count", 1, kMaxHeads));
  TANDEM_ASSIGN_OR_RETURN(config.num_kv_heads,
                          keys.IntOr("attention.head_count_kv", config.num_heads, 1, config.num_heads));
  TANDEM_ASSIGN_OR_RETURN(config.max_position, keys.Int("context_length", 1, kMaxPositions));
  TANDEM_ASSIGN_OR_RETURN(config.rms_norm_eps, keys.Float("attention.layer_norm_rms_epsilon", 0.0, 1.0));
  TANDEM_ASSIGN_OR_RETURN(config.sliding_window, keys.IntOr("attention.sliding_window", 0, 0, kMaxPositions));

  if (keys.Has("attention.key_length")) {
    TANDEM_ASSIGN_OR_RETURN(config.head_dim, keys.Int("attention.key_length", 1, kMaxHeadDim));
  } else if (config.hidden_size % config.num_heads == 0) {
    config.head_dim = config.hidden_size / config.num_heads;
  } else {
    return MakeError(ErrorCode::kMalformedFile,
                     "{}: embedding_length {} does not divide among {} heads and there is no key_length",
                     file.path(), config.hidden_size, config.num_heads);
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t value_length,
                          keys.IntOr("attention.value_length", config.head_dim, 1, kMaxHeadDim));
  if (value_length != config.head_dim) {
    return MakeError(ErrorCode::kUnsupported, "{}: keys of size {} and values of size {} are not supported",
                     file.path(), config.head_dim, value_length);
  }
  // The embedding is the vocabulary; the metadata key is younger than the format.
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return MakeError(ErrorCode::kMalformedFile, "{}: tensor 'token_embd.weight' is missing", file.path());
  }
  TANDEM_ASSIGN_OR_RETURN(config.vocab_size, keys.IntOr("vocab_size", embedding->dims[1], 1, kMaxVocabSize));
  if (config.vocab_size > kMaxVocabSize) {
    return MakeError(ErrorCode::kMalformedFile, "{}: tensor 'token_embd.weight' has {} rows, more than {}",
                     file.path(), config.vocab_size, kMaxVocabSize);
  }
  return {};
}

// Numbers of llama.cpp's: none, mean, cls, last, rank.
Status ReadPooling(const ArchitectureKeys& keys, ModelConfig& config) {
  constexpr int64_t kMean = 1;
  constexpr int64_t kCls = 2;
  TANDEM_ASSIGN_OR_RETURN(const int64_t type, keys.IntOr("pooling_type", 0, -1, 1000));
  if (type == kMean) config.pooling = Pooling::kMean;
  if (type == kCls) config.pooling = Pooling::kFirst;
  return {};
}

Status ReadRopeDivisors(const GgufFile& file, ModelConfig& config) {
  const GgufTensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return {};
  if (tensor->num_dims != 1 || tensor->dims[0] != config.head_dim / 2) {
    return MakeError(ErrorCode::kMalformedFile, "{}: tensor 'rope_freqs.weight' has {} values, not {}",
                     file.path(), tensor->dims[0], config.head_dim / 2);
  }
  config.rope_freq_divisors.resize(static_cast<size_t>(tensor->dims[0]));
  ConvertElements(tensor->format.type, tensor->data, tensor->dims[0], DType::kF32,
                  config.rope_freq_divisors.data());
  for (const float divisor : config.rope_freq_divisors) {
    if (!(divisor > 0.0F) || !std::isfinite(divisor)) {
      return MakeError(ErrorCode::kMalformedFile,
                       "{}: tensor 'rope_freqs.weight' holds {}, not a positive number", file.path(),
                       divisor);
    }
  }
  return {};
}

Status ReadYarn(const ArchitectureKeys& keys, ModelConfig& config) {
  RopeScaling& scaling = config.rope_scaling;
  scaling.type = RopeScaling::Type::kYarn;
  TANDEM_ASSIGN_OR_RETURN(scaling.factor, keys.Float("rope.scaling.factor", 1.0, kMaxRopeFactor));
  TANDEM_ASSIGN_OR_RETURN(scaling.original_max_position,
                          keys.IntOr("rope.scaling.original_context_length", 0, 0, kMaxPositions));
  TANDEM_ASSIGN_OR_RETURN(scaling.beta_fast,
                          keys.FloatOr("rope.scaling.yarn_beta_fast", 32.0, 1e-3, kMaxRopeFactor));
  TANDEM_ASSIGN_OR_RETURN(scaling.beta_slow,
                          keys.FloatOr("rope.scaling.yarn_beta_slow", 1.0, 1e-3, kMaxRopeFactor));
  // It multiplies YaRN's own factor.
  TANDEM_ASSIGN_OR_RETURN(const double attention, keys.FloatOr("rope.scaling.attn_factor", 1.0, 1e-3, 1e3));
  scaling.attention_factor = attention * DefaultYarnAttention(scaling.factor);
  CompleteRopeScaling(&config);
  return {};
}

Status ReadRope(const GgufFile& file, const ArchitectureKeys& keys, ModelConfig& config) {
  TANDEM_ASSIGN_OR_RETURN(config.rope_theta, keys.FloatOr("rope.freq_base", 10000.0, 1e-3, kMaxRopeTheta));
  TANDEM_ASSIGN_OR_RETURN(const int64_t rotary_dims,
                          keys.IntOr("rope.dimension_count", config.head_dim, 1, kMaxHeadDim));
  if (rotary_dims != config.head_dim) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: rotary embeddings of {} of {} dimensions are not supported, only of all",
                     file.path(), rotary_dims, config.head_dim);
  }
  RopeScaling& scaling = config.rope_scaling;
  // "rope.scale_linear" is the older name of a linear factor.
  TANDEM_ASSIGN_OR_RETURN(const double old_factor,
                          keys.FloatOr("rope.scale_linear", 1.0, 1.0, kMaxRopeFactor));
  const Result<std::string> type =
      keys.StringOr("rope.scaling.type", keys.Has("rope.scale_linear") ? "linear" : "none");
  if (!type.ok()) return type.error();
  if (type.value() == std::string_view("linear")) {
    TANDEM_ASSIGN_OR_RETURN(scaling.factor,
                            keys.FloatOr("rope.scaling.factor", old_factor, 1.0, kMaxRopeFactor));
    scaling.type = scaling.factor == 1.0 ? RopeScaling::Type::kNone : RopeScaling::Type::kLinear;
  } else if (type.value() == std::string_view("yarn")) {
    TANDEM_RETURN_IF_ERROR(ReadYarn(keys, config));
  } else if (type.value() != std::string_view("none")) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: RoPE scaling '{}' is not supported; none, linear and yarn are", file.path(),
                     type.value().substr(0, 100));
  }
  return ReadRopeDivisors(file, config);
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kModelTensorNames = {{
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kLayerTensorNames = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
}};

template <size_t N>
std::string_view Translate(const std::array<std::pair<std::string_view, std::string_view>, N>& names,
                           std::string_view name) {
  for (const auto& [gguf, hugging_face] : names) {
    if (gguf == name) return hugging_face;
  }
  return {};
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

Status RefuseMixtures(const GgufFile& file) {
  const Result<std::string_view> architecture = file.GetString("general.architecture");
  if (!architecture.ok()) return {};
  const std::string name(architecture->substr(0, 100));
  const ArchitectureKeys keys(file, name);
  TANDEM_ASSIGN_OR_RETURN(const int64_t num_experts, keys.IntOr("expert_count", 0, 0, kMaxPositions));
  if (num_experts == 0 && MixtureFamily(name).empty()) return {};
  // Mixtral's files say "llama".
  return MixtureNotServed(file.path(), name == "llama" ? "mixtral" : name, num_experts);
}

Result<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  const Result<std::string_view> architecture = file.GetString("general.architecture");
  if (!architecture.ok()) return Error{ErrorCode::kMalformedFile, architecture.error().message, {}};
  ModelConfig config;
  config.architecture = std::string(architecture->substr(0, 100));
  if (config.architecture == "llama") {
    config.family = ModelFamily::kLlama;
  } else if (config.architecture == "qwen2") {
    config.family = ModelFamily::kQwen2;
  } else if (config.architecture == "qwen3") {
    config.family = ModelFamily::kQwen3;
  } else {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: architecture '{}' is not supported; llama, qwen2 and qwen3 are", file.path(),
                     config.architecture);
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t num_files, file.GetIntOr("split.count", 1));
  if (num_files > 1) {
    return MakeError(ErrorCode::kUnsupported, "{}: a model split into {} GGUF files is not supported",
                     file.path(), num_files);
  }
  const ArchitectureKeys keys(file, config.architecture);
  TANDEM_RETURN_IF_ERROR(ReadSizes(file, keys, config));
  TANDEM_RETURN_IF_ERROR(CheckModelConfig(config, file.path()));
  TANDEM_RETURN_IF_ERROR(ReadRope(file, keys, config));
  TANDEM_RETURN_IF_ERROR(ReadPooling(keys, config));
  config.tie_word_embeddings = file.FindTensor("output.weight") == nullptr;
  config.qkv_bias = config.family == ModelFamily::kQwen2 || file.FindTensor("blk.0.attn_q.bias") != nullptr;
  config.output_bias = file.FindTensor("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.FindTensor("blk.0.ffn_down.bias") != nullptr;
  config.qk_norm = config.family == ModelFamily::kQwen3;
  return config;
}

Result<GenerationDefaults> ReadGgufGenerationDefaults(const GgufFile& file) {
  GenerationDefaults defaults;
  const auto read_id = [&file](std::string_view key, std::optional<int32_t>& target) -> Status {
    if (!file.Has(key)) return {};
    TANDEM_ASSIGN_OR_RETURN(const int64_t id, file.GetInt(key));
    // Converters write -1 (as an unsigned 32-bit number) for a token that the vocabulary does not have.
    if (id == -1 || id == std::numeric_limits<uint32_t>::max()) return {};
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return MakeError(ErrorCode::kMalformedFile, "{}: metadata '{}' is {}, not a token id", file.path(), key,
                       id);
    }
    target = static_cast<int32_t>(id);
    return {};
  };
  TANDEM_RETURN_IF_ERROR(read_id("tokenizer.ggml.bos_token_id", defaults.bos_token_id));
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    std::optional<int32_t> id;
    TANDEM_RETURN_IF_ERROR(read_id(key, id));
    std::vector<int32_t>& ids = defaults.eos_token_ids;
    if (id.has_value() && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
  return defaults;
}

std::string HuggingFaceTensorName(std::string_view gguf_name) {
  std::string unknown(gguf_name);
  const size_t last_dot = gguf_name.rfind('.');
  if (last_dot == std::string_view::npos) return unknown;
  const std::string_view suffix = gguf_name.substr(last_dot);  // ".weight" or ".bias"
  const std::string_view stem = gguf_name.substr(0, last_dot);
  if (const std::string_view found = Translate(kModelTensorNames, stem); !found.empty())
    return std::string(found) + std::string(suffix);
  constexpr std::string_view kLayerPrefix = "blk.";
  if (!stem.starts_with(kLayerPrefix)) return unknown;
  const std::string_view rest = stem.substr(kLayerPrefix.size());
  const size_t dot = rest.find('.');
  if (dot == std::string_view::npos) return unknown;
  const std::string_view layer = rest.substr(0, dot);
  const std::string_view found = Translate(kLayerTensorNames, rest.substr(dot + 1));
  if (found.empty()) return unknown;
  return fmt::format("model.layers.{}.{}{}", layer, found, suffix);
}

int64_t NumPermutedHeads(const ModelConfig& config, std::string_view name) {
  if (config.architecture != "llama") return 0;
  if (Contains(name, ".self_attn.q_proj.")) return config.num_heads;
  if (Contains(name, ".self_attn.k_proj.")) return config.num_kv_heads;
  return 0;
}

}  // namespace tandem
