// A model as far as costs and memory go.
#pragma once

#include <cstdint>
#include <string>

#include "base/quantization.h"
#include "base/result.h"
#include "load/model_config.h"

namespace tandem {

struct ModelOutline {
  std::string name;
  ModelConfig config;
  Quantization quantization = Quantization::kNone;  // kKeep: as a file has it
  std::string form;                                 // "bf16", "int4, groups of 128"
  double bytes_per_weight = 2;

  // Weights, as many as are read for one row.
  int64_t layer_weights() const;
  int64_t lm_head_weights() const { return config.hidden_size * config.vocab_size; }
  // With the embedding, and a tied lm_head as often as it is kept.
  int64_t weight_bytes() const;
  // Of K and V of a token in all layers, 16 bits an element.
  int64_t kv_token_bytes() const { return 2 * 2 * config.num_layers * config.kv_width(); }
};

// name: a shape as --dummy takes it ("llama-3.1-8b:int4"), a Hugging Face folder or a .gguf file. Errors:
// kNotFound, with the shapes that there are, and those of Checkpoint::Open; param is "model".
Result<ModelOutline> OutlineModel(const std::string& name);

}  // namespace tandem
