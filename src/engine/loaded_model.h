// Everything that loading a checkpoint gives: the decoder on its backend, cut into shards if wanted, and the
// model's text side.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "engine/backend.h"
#include "engine/engine_options.h"
#include "engine/kv_formats.h"
#include "load/checkpoint.h"
#include "model/decoder.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// Order of members: the decoders' weights live in the backend's memory and go first.
struct LoadedModel {
  Backend backend;
  ModelConfig config;                            // of the whole model
  std::unique_ptr<CollectiveGroup> collectives;  // null for one shard
  std::vector<std::unique_ptr<Decoder>> shards;  // by rank
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // may be nullptr
  GenerationDefaults generation_defaults;
  KvFormats kv_formats;  // in which the tiers keep K and V

  // They are alike: all with as many heads.
  const Decoder& first_shard() const { return *shards.front(); }
  int64_t num_shards() const { return static_cast<int64_t>(shards.size()); }
  // KV heads of all shards together: more than the model's where several have the same one.
  int64_t num_kv_heads() const { return num_shards() * first_shard().config().num_kv_heads; }
};

// Of the dummy that options name, with their RoPE scaling.
Result<ModelConfig> DummyConfigOf(const EngineOptions& options);

// Fills in what options leave open (dtype, max_model_len, max_num_batched_tokens, served_model_name).
Result<LoadedModel> LoadModel(EngineOptions* options);

}  // namespace tandem
