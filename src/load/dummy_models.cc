#include "load/dummy_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/param_error.h"

namespace tandem {
namespace {

struct NamedConfig {
  std::string name;
  ModelConfig config;
};

ModelConfig Llama(int64_t num_layers, int64_t hidden_size, int64_t intermediate_size, int64_t num_heads,
                  int64_t num_kv_heads, int64_t vocab_size, int64_t max_position) {
  ModelConfig config;
  config.family = ModelFamily::kLlama;
  config.architecture = "LlamaForCausalLM";
  config.num_layers = num_layers;
  config.hidden_size = hidden_size;
  config.intermediate_size = intermediate_size;
  config.num_heads = num_heads;
  config.num_kv_heads = num_kv_heads;
  config.head_dim = hidden_size / num_heads;
  config.vocab_size = vocab_size;
  config.max_position = max_position;
  return config;
}

ModelConfig Llama3(int64_t num_layers, int64_t hidden_size, int64_t intermediate_size, int64_t num_heads,
                   double rope_factor) {
  ModelConfig config = Llama(num_layers, hidden_size, intermediate_size, num_heads, 8, 128256, 131072);
  config.rope_theta = 500000.0;
  config.rope_scaling = {.type = RopeScaling::Type::kLlama3,
                         .factor = rope_factor,
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_position = 8192};
  return config;
}

// Numbers of the config.json files that these models are published with.
std::vector<NamedConfig> MakeDummyModels() {
  ModelConfig llama_3_2_1b = Llama3(16, 2048, 8192, 32, 32.0);
  llama_3_2_1b.tie_word_embeddings = true;

  // One of two tensor-parallel shards of llama-3.1-70b, without the all-reduces.
  ModelConfig llama_3_1_70b_half = Llama3(80, 8192, 14336, 32, 8.0);
  llama_3_1_70b_half.num_kv_heads = 4;
  llama_3_1_70b_half.head_dim = 128;
  llama_3_1_70b_half.vocab_size = 64128;

  ModelConfig qwen2_5_7b = Llama(28, 3584, 18944, 28, 4, 152064, 131072);
  qwen2_5_7b.family = ModelFamily::kQwen2;
  qwen2_5_7b.architecture = "Qwen2ForCausalLM";
  qwen2_5_7b.rms_norm_eps = 1e-6;
  qwen2_5_7b.rope_theta = 1e6;
  qwen2_5_7b.qkv_bias = true;

  ModelConfig qwen2_5_14b = Llama(48, 5120, 13824, 40, 8, 152064, 131072);
  qwen2_5_14b.family = ModelFamily::kQwen2;
  qwen2_5_14b.architecture = "Qwen2ForCausalLM";
  qwen2_5_14b.rope_theta = 1e6;
  qwen2_5_14b.qkv_bias = true;

  ModelConfig qwen3_32b = Llama(64, 5120, 25600, 64, 8, 151936, 40960);
  qwen3_32b.family = ModelFamily::kQwen3;
  qwen3_32b.architecture = "Qwen3ForCausalLM";
  qwen3_32b.head_dim = 128;
  qwen3_32b.rms_norm_eps = 1e-6;
  qwen3_32b.rope_theta = 1e6;
  qwen3_32b.qk_norm = true;

  // Mistral-Small-24B-2501.
  ModelConfig mistral_24b = Llama(40, 5120, 32768, 32, 8, 131072, 32768);
  mistral_24b.family = ModelFamily::kMistral;
  mistral_24b.architecture = "MistralForCausalLM";
  mistral_24b.head_dim = 128;
  mistral_24b.rope_theta = 1e8;

  ModelConfig mistral_7b = Llama(32, 4096, 14336, 32, 8, 32000, 32768);
  mistral_7b.family = ModelFamily::kMistral;
  mistral_7b.architecture = "MistralForCausalLM";
  mistral_7b.sliding_window = 4096;

  ModelConfig smollm2_135m = Llama(30, 576, 1536, 9, 3, 49152, 8192);
  smollm2_135m.rope_theta = 100000.0;
  smollm2_135m.tie_word_embeddings = true;

  return {{"llama-2-7b", Llama(32, 4096, 11008, 32, 32, 32000, 4096)},
          {"llama-2-13b", Llama(40, 5120, 13824, 40, 40, 32000, 4096)},
          {"llama-3.1-8b", Llama3(32, 4096, 14336, 32, 8.0)},
          {"llama-3.1-70b", Llama3(80, 8192, 28672, 64, 8.0)},
          {"llama-3.1-70b-half", std::move(llama_3_1_70b_half)},
          {"llama-3.2-1b", std::move(llama_3_2_1b)},
          {"qwen2.5-7b", std::move(qwen2_5_7b)},
          {"qwen2.5-14b", std::move(qwen2_5_14b)},
          {"qwen3-32b", std::move(qwen3_32b)},
          {"mistral-7b-v0.1", std::move(mistral_7b)},
          {"mistral-24b", std::move(mistral_24b)},
          {"smollm2-135m", std::move(smollm2_135m)},
          {"tiny", Llama(2, 256, 512, 4, 2, 1024, 4096)}};
}

const std::vector<NamedConfig>& DummyModels() {
  static const std::vector<NamedConfig> models = MakeDummyModels();
  return models;
}

}  // namespace

std::vector<std::string> DummyModelNames() {
  std::vector<std::string> names;
  for (const NamedConfig& model : DummyModels()) names.push_back(model.name);
  return names;
}

Result<DummyName> ParseDummyName(std::string_view name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string_view::npos) return DummyName{.shape = name};
  for (const Quantization quantization : {Quantization::kInt4, Quantization::kInt8, Quantization::kFp8}) {
    if (name.substr(colon + 1) == QuantizationName(quantization))
      return DummyName{.shape = name.substr(0, colon), .quantization = quantization};
  }
  return MakeParamError(ErrorCode::kInvalidArgument, "dummy",
                        "'{}': what is behind the colon is none of int4, int8, fp8", name);
}

Result<ModelConfig> DummyModelConfig(std::string_view name) {
  TANDEM_ASSIGN_OR_RETURN(const DummyName parsed, ParseDummyName(name));
  for (const NamedConfig& model : DummyModels()) {
    if (model.name == parsed.shape) return model.config;
  }
  return MakeParamError(ErrorCode::kNotFound, "dummy", "there is no dummy model '{}'; there are {}",
                        parsed.shape, fmt::join(DummyModelNames(), ", "));
}

}  // namespace tandem
