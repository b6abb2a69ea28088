#include "load/required_tensors.h"

#include <fmt/format.h>

namespace tandem {

std::vector<RequiredTensor> RequiredTensors(const ModelConfig& config) {
  std::vector<RequiredTensor> result;
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = config.q_width();
  const int64_t kv_size = config.kv_width();
  const auto add_linear = [&result](const std::string& name, int64_t rows, int64_t cols, bool bias) {
    result.push_back({name + ".weight", rows, cols});
    if (bias) result.push_back({name + ".bias", 1, rows});
  };

  result.push_back({"model.embed_tokens.weight", config.vocab_size, hidden});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    result.push_back({prefix + "input_layernorm.weight", 1, hidden});
    add_linear(prefix + "self_attn.q_proj", q_size, hidden, config.qkv_bias);
    add_linear(prefix + "self_attn.k_proj", kv_size, hidden, config.qkv_bias);
    add_linear(prefix + "self_attn.v_proj", kv_size, hidden, config.qkv_bias);
    add_linear(prefix + "self_attn.o_proj", hidden, q_size, config.output_bias);
    if (config.qk_norm) {
      result.push_back({prefix + "self_attn.q_norm.weight", 1, config.head_dim});
      result.push_back({prefix + "self_attn.k_norm.weight", 1, config.head_dim});
    }
    result.push_back({prefix + "post_attention_layernorm.weight", 1, hidden});
    add_linear(prefix + "mlp.gate_proj", config.intermediate_size, hidden, config.mlp_bias);
    add_linear(prefix + "mlp.up_proj", config.intermediate_size, hidden, config.mlp_bias);
    add_linear(prefix + "mlp.down_proj", hidden, config.intermediate_size, config.mlp_bias);
  }
  result.push_back({"model.norm.weight", 1, hidden});
  if (!config.tie_word_embeddings) result.push_back({"lm_head.weight", config.vocab_size, hidden});
  return result;
}

}  // namespace tandem
