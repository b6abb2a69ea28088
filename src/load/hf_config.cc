#include "load/hf_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "load/config_limits.h"
#include "load/json_fields.h"
#include "load/mixture_families.h"
#include "load/rope_scaling.h"

namespace tandem {
namespace {

struct Architecture {
  std::string_view name;
  std::string_view model_type;
  ModelFamily family;
  int64_t default_max_position;
};
constexpr std::array<Architecture, 4> kArchitectures = {{
    {"LlamaForCausalLM", "llama", ModelFamily::kLlama, 2048},
    {"MistralForCausalLM", "mistral", ModelFamily::kMistral, 131072},
    {"Qwen2ForCausalLM", "qwen2", ModelFamily::kQwen2, 32768},
    {"Qwen3ForCausalLM", "qwen3", ModelFamily::kQwen3, 32768},
}};

// The class without the head: "MistralModel".
bool IsWithoutHead(const Architecture& architecture, std::string_view name) {
  const std::string_view stem = architecture.name.substr(0, architecture.name.find("ForCausalLM"));
  return name.starts_with(stem) && name.substr(stem.size()) == "Model";
}

// Of a mixture, whatever the field is called; 0 of others.
int64_t NumExperts(const JsonFields& fields) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    const Result<int64_t> count = fields.IntOr(key, 0, 0, kMaxPositions);
    if (count.ok() && *count > 0) return *count;
  }
  return 0;
}

Result<const Architecture*> FindArchitecture(const JsonFields& fields, bool* has_head) {
  *has_head = true;
  std::string name;
  if (fields.Has("architectures")) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> names, fields.Strings("architectures"));
    if (names.size() != 1) return fields.Wrong("architectures", "an array of one name");
    name = names.front();
    for (const Architecture& architecture : kArchitectures) {
      if (architecture.name == name) return &architecture;
      if (!IsWithoutHead(architecture, name)) continue;
      *has_head = false;
      return &architecture;
    }
  } else {
    // Folders written without a head class name only the model type.
    TANDEM_ASSIGN_OR_RETURN(name, fields.String("model_type"));
    for (const Architecture& architecture : kArchitectures) {
      if (architecture.model_type == name) return &architecture;
    }
  }
  const int64_t num_experts = NumExperts(fields);
  if (num_experts > 0 || !MixtureFamily(name).empty())
    return MixtureNotServed(fields.where(), name, num_experts);
  return MakeError(ErrorCode::kUnsupported,
                   "{}: architecture '{}' is not supported; LlamaForCausalLM, MistralForCausalLM, "
                   "Qwen2ForCausalLM and Qwen3ForCausalLM are, with or without a head",
                   fields.where(), name.substr(0, 100));
}

Status ReadSizes(const JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  TANDEM_ASSIGN_OR_RETURN(config.num_layers, fields.Int("num_hidden_layers", 1, kMaxLayers));
  TANDEM_ASSIGN_OR_RETURN(config.hidden_size, fields.Int("hidden_size", 1, kMaxHiddenSize));
  TANDEM_ASSIGN_OR_RETURN(config.intermediate_size, fields.Int("intermediate_size", 1, kMaxIntermediateSize));
  TANDEM_ASSIGN_OR_RETURN(config.num_heads, fields.Int("num_attention_heads", 1, kMaxHeads));
  TANDEM_ASSIGN_OR_RETURN(config.num_kv_heads,
                          fields.IntOr("num_key_value_heads", config.num_heads, 1, config.num_heads));
  TANDEM_ASSIGN_OR_RETURN(config.vocab_size, fields.Int("vocab_size", 1, kMaxVocabSize));
  TANDEM_ASSIGN_OR_RETURN(
      config.max_position,
      fields.IntOr("max_position_embeddings", architecture.default_max_position, 1, kMaxPositions));
  TANDEM_ASSIGN_OR_RETURN(config.rms_norm_eps, fields.FloatOr("rms_norm_eps", 1e-6, 0.0, 1.0));
  if (fields.Has("head_dim")) {
    TANDEM_ASSIGN_OR_RETURN(config.head_dim, fields.Int("head_dim", 1, kMaxHeadDim));
  } else if (architecture.family == ModelFamily::kQwen3) {
    config.head_dim = 128;
  } else {
    if (config.hidden_size % config.num_heads != 0) {
      return MakeError(ErrorCode::kMalformedFile,
                       "{}: field 'head_dim' is missing and hidden_size {} does not divide among {} heads",
                       fields.where(), config.hidden_size, config.num_heads);
    }
    config.head_dim = config.hidden_size / config.num_heads;
  }
  return {};
}

// The settings are in "rope_scaling" of older files, in "rope_parameters" of newer ones.
Status ReadRope(const JsonFields& fields, ModelConfig& config) {
  constexpr double kMinTheta = 1e-3;
  TANDEM_ASSIGN_OR_RETURN(config.rope_theta, fields.FloatOr("rope_theta", 10000.0, kMinTheta, kMaxRopeTheta));
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!fields.Has(key)) continue;
    TANDEM_ASSIGN_OR_RETURN(const JsonFields rope, fields.Object(key));
    if (rope.Has("full_attention") || rope.Has("sliding_attention")) {
      return MakeError(ErrorCode::kUnsupported, "{}: RoPE settings that differ by layer are not supported",
                       rope.where());
    }
    TANDEM_ASSIGN_OR_RETURN(config.rope_scaling, ReadRopeScaling(rope));
    CompleteRopeScaling(&config);
    TANDEM_ASSIGN_OR_RETURN(config.rope_theta,
                            rope.FloatOr("rope_theta", config.rope_theta, kMinTheta, kMaxRopeTheta));
    return {};
  }
  return {};
}

// The layers that a Qwen config gives a sliding window: a list, or all from max_window_layers on.
Result<int64_t> CountSlidingLayers(const JsonFields& fields, int64_t num_layers) {
  if (!fields.Has("layer_types")) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t first, fields.IntOr("max_window_layers", 28, 0, kMaxPositions));
    return std::max<int64_t>(num_layers - first, 0);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> types, fields.Strings("layer_types"));
  if (static_cast<int64_t>(types.size()) != num_layers)
    return fields.Wrong("layer_types", fmt::format("an array of {} names", num_layers));
  int64_t sliding = 0;
  for (const std::string& type : types) {
    if (type == "sliding_attention") {
      ++sliding;
    } else if (type != "full_attention") {
      return MakeError(ErrorCode::kUnsupported, "{}: layer type '{}' is not supported", fields.where(),
                       type.substr(0, 100));
    }
  }
  return sliding;
}

Status ReadSlidingWindow(const JsonFields& fields, ModelConfig& config) {
  if (config.family == ModelFamily::kLlama) return {};
  constexpr const char* kKey = "sliding_window";
  if (config.family == ModelFamily::kMistral) {
    // Absent and null differ: a file without the field means the first Mistral's window.
    const bool is_null = fields.ContainsNull(kKey);
    TANDEM_ASSIGN_OR_RETURN(config.sliding_window, fields.IntOr(kKey, is_null ? 0 : 4096, 1, kMaxPositions));
    return {};
  }
  TANDEM_ASSIGN_OR_RETURN(const bool used, fields.BoolOr("use_sliding_window", false));
  if (!used || !fields.Has(kKey)) return {};
  TANDEM_ASSIGN_OR_RETURN(const int64_t window, fields.Int(kKey, 1, kMaxPositions));
  TANDEM_ASSIGN_OR_RETURN(const int64_t sliding_layers, CountSlidingLayers(fields, config.num_layers));
  if (sliding_layers == 0) return {};
  if (sliding_layers != config.num_layers) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: a sliding window in {} of {} layers is not supported, only in all or none",
                     fields.where(), sliding_layers, config.num_layers);
  }
  config.sliding_window = window;
  return {};
}

Status CheckActivation(const JsonFields& fields) {
  constexpr const char* kKey = "hidden_act";
  if (!fields.Has(kKey)) return {};
  const Result<std::string> activation = fields.String(kKey);
  if (!activation.ok()) return activation.error();
  if (activation.value() == std::string_view("silu")) return {};
  return MakeError(ErrorCode::kUnsupported, "{}: hidden_act '{}' is not supported, only silu", fields.where(),
                   activation.value().substr(0, 100));
}

Status ReadBiases(const JsonFields& fields, ModelConfig& config) {
  switch (config.family) {
    case ModelFamily::kLlama: {
      TANDEM_ASSIGN_OR_RETURN(config.qkv_bias, fields.BoolOr("attention_bias", false));
      TANDEM_ASSIGN_OR_RETURN(config.mlp_bias, fields.BoolOr("mlp_bias", false));
      config.output_bias = config.qkv_bias;
      return {};
    }
    case ModelFamily::kMistral:
      return {};
    case ModelFamily::kQwen2:
      config.qkv_bias = true;
      return {};
    case ModelFamily::kQwen3: {
      TANDEM_ASSIGN_OR_RETURN(config.qkv_bias, fields.BoolOr("attention_bias", false));
      config.output_bias = config.qkv_bias;
      config.qk_norm = true;
      return {};
    }
  }
  return {};
}

}  // namespace

Result<ModelConfig> ParseHfConfig(const nlohmann::json& config_json, const std::string& source) {
  const JsonFields fields(config_json, source);
  ModelConfig config;
  TANDEM_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(fields, &config.generates));
  config.family = architecture->family;
  config.architecture = architecture->name;
  TANDEM_RETURN_IF_ERROR(ReadSizes(fields, *architecture, config));
  TANDEM_RETURN_IF_ERROR(CheckActivation(fields));
  TANDEM_RETURN_IF_ERROR(ReadRope(fields, config));
  TANDEM_RETURN_IF_ERROR(ReadSlidingWindow(fields, config));
  TANDEM_RETURN_IF_ERROR(ReadBiases(fields, config));
  TANDEM_ASSIGN_OR_RETURN(config.tie_word_embeddings, fields.BoolOr("tie_word_embeddings", false));
  if (!config.generates) config.tie_word_embeddings = true;
  TANDEM_RETURN_IF_ERROR(CheckModelConfig(config, source));
  return config;
}

Result<GenerationDefaults> ParseHfGenerationDefaults(const nlohmann::json& config,
                                                     const std::string& config_source,
                                                     const nlohmann::json& generation_config,
                                                     const std::string& generation_source) {
  GenerationDefaults defaults;
  const JsonFields model(config, config_source);
  const JsonFields generation(generation_config, generation_source);
  for (const JsonFields* fields : {&model, &generation}) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<int32_t> bos, fields->TokenIds("bos_token_id"));
    if (!bos.empty()) defaults.bos_token_id = bos.front();
    TANDEM_ASSIGN_OR_RETURN(std::vector<int32_t> eos, fields->TokenIds("eos_token_id"));
    if (!eos.empty()) defaults.eos_token_ids = std::move(eos);
  }
  const auto read_float = [&](const char* key, double min, double max,
                              std::optional<float>& target) -> Status {
    if (!generation.Has(key)) return {};
    TANDEM_ASSIGN_OR_RETURN(const double value, generation.Float(key, min, max));
    target = static_cast<float>(value);
    return {};
  };
  TANDEM_RETURN_IF_ERROR(read_float("temperature", 0.0, 100.0, defaults.temperature));
  TANDEM_RETURN_IF_ERROR(read_float("top_p", 0.0, 1.0, defaults.top_p));
  TANDEM_RETURN_IF_ERROR(read_float("repetition_penalty", 1e-3, 1e3, defaults.repetition_penalty));
  if (generation.Has("top_k")) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t top_k, generation.Int("top_k", 0, kMaxVocabSize));
    defaults.top_k = static_cast<int32_t>(top_k);
  }
  return defaults;
}

}  // namespace tandem
