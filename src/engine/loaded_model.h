// Everything that loading a checkpoint gives: the decoder on its backend, cut into shards if wanted, and the
// model's text side.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "collective/processes.h"
#include "engine/backend.h"
#include "engine/engine_options.h"
#include "engine/kv_formats.h"
#include "load/checkpoint.h"
#include "model/decoder.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// In one process all shards, in processes of their own (EngineOptions::processes) or without the others
// (EngineOptions::lone_shard) that of this one. Order of members: the decoders' weights live in the backend's
// memory and go first.
struct LoadedModel {
  Backend backend;
  ModelConfig config;  // of the whole model
  Processes* processes = nullptr;
  std::optional<Shard> on_host;  // PlaceOnHost
  // Null for one shard, and between processes on the host backend, which have their own.
  std::unique_ptr<CollectiveGroup> collectives;
  int64_t num_shards = 1;                        // of all processes
  std::vector<std::unique_ptr<Decoder>> shards;  // of this one, by rank
  // Of all on this host, by rank among them: NodesOfShards.
  std::vector<std::vector<int>> shard_nodes;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // may be nullptr
  GenerationDefaults generation_defaults;
  KvFormats kv_formats;  // in which the tiers keep K and V

  // They are alike: all with as many heads.
  const Decoder& first_shard() const { return *shards.front(); }
  Shard ShardAt(size_t index) const {
    const int first = processes == nullptr ? 0 : processes->shard().rank;
    return {.rank = first + static_cast<int>(index), .size = static_cast<int>(num_shards)};
  }
  // Among those of its host.
  Shard PlaceOf(const Shard& shard) const { return on_host.value_or(shard); }
  const std::vector<int>& NodesAt(size_t index) const {
    return shard_nodes[static_cast<size_t>(PlaceOf(ShardAt(index)).rank)];
  }
  // What the shards exchange through; null for one.
  CollectiveGroup* exchange() const {
    return collectives || processes == nullptr ? collectives.get() : processes->collectives();
  }
  // Of all shards, from a sum over those of this process.
  template <typename T>
  T OfAll(T sum) const {
    return sum * static_cast<T>(num_shards) / static_cast<T>(shards.size());
  }
  // KV heads of all shards together: more than the model's where several have the same one.
  int64_t num_kv_heads() const { return num_shards * first_shard().config().num_kv_heads; }
};

// Of the dummy that options name, with their RoPE scaling.
Result<ModelConfig> DummyConfigOf(const EngineOptions& options);

// Fills in what options leave open (dtype, max_model_len, max_num_batched_tokens, served_model_name). With
// processes all of them call it; an error of another rank is one of rank 0 that names it. Ranks but 0 get no
// text side.
Result<LoadedModel> LoadModel(EngineOptions* options);

}  // namespace tandem
