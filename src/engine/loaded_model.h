// Everything that loading a checkpoint gives: the decoder on its backend, and the model's text side.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/backend.h"
#include "engine/engine_options.h"
#include "engine/kv_formats.h"
#include "load/checkpoint.h"
#include "model/decoder.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// Order of members: the decoder's weights live in the backend's memory and go first.
struct LoadedModel {
  Backend backend;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // may be nullptr
  GenerationDefaults generation_defaults;
  KvFormats kv_formats;  // in which the tiers keep K and V
};

// Of the dummy that options name, with their RoPE scaling.
Result<ModelConfig> DummyConfigOf(const EngineOptions& options);

// Fills in what options leave open (dtype, max_model_len, max_num_batched_tokens, served_model_name).
Result<LoadedModel> LoadModel(EngineOptions* options);

}  // namespace tandem
