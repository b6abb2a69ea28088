// What a checkpoint says about the shape of its model. Plain data, filled from config.json or GGUF metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/pooling.h"

namespace tandem {

// Llama covers Llama 2/3/3.1, SmolLM2, TinyLlama and Mistral: they differ only in numbers.
enum class ModelFamily { kLlama, kMistral, kQwen2, kQwen3 };

// Plain linear scaling, Llama 3.1's, which depends on the frequency, or YaRN (arXiv 2309.00071).
struct RopeScaling {
  enum class Type { kNone, kLinear, kLlama3, kYarn };
  Type type = Type::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // kLlama3, these two
  double high_freq_factor = 4.0;
  double beta_fast =
      32.0;  // kYarn, from here: rotations over the original context from which on a pair is kept
  double beta_slow = 1.0;             // and up to which it is stretched
  double attention_factor = 1.0;      // q and k are multiplied by it
  bool truncate = true;               // the bounds between kept and stretched pairs are whole numbers
  int64_t original_max_position = 0;  // context that is stretched; 0: not said
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  std::string architecture;  // as the file names it, for messages: "LlamaForCausalLM", "llama"
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position = 0;    // context length the model was trained for
  int64_t sliding_window = 0;  // keys a query sees, itself included; 0: all (Mistral v0.1 has 4096)
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  // GGUF carries Llama 3.1's scaling as a tensor of head_dim / 2 divisors of the frequencies; empty
  // otherwise.
  std::vector<float> rope_freq_divisors;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;     // Qwen2
  bool output_bias = false;  // attention output projection, "attention_bias" of a Llama config
  bool mlp_bias = false;
  bool qk_norm = false;              // Qwen3: RMS norm of every q and k head before RoPE
  Pooling pooling = Pooling::kLast;  // of its embeddings
  // Whether it has been trained to continue texts. Where not it has no lm_head either, and the embedding is
  // taken for it.
  bool generates = true;

  // Columns of Q, of K (and of V), and of all three together.
  int64_t q_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

// From generation_config.json, or GGUF tokenizer metadata.
struct GenerationDefaults {
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // any of them ends a sequence
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> repetition_penalty;
};

}  // namespace tandem
