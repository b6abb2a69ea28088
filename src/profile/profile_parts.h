// The real parts of an engine that a profile measures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "execute/logits_stage.h"
#include "kv/kv_books.h"
#include "kv/kv_memory.h"
#include "model/decoder.h"
#include "model/row_batch.h"
#include "ops/ops.h"

namespace tandem {

// What a shard has of its own.
struct ShardParts {
  Device* device = nullptr;
  Ops* ops = nullptr;
  const Decoder* decoder = nullptr;
  KvMemory* memory = nullptr;
  CpuAttention* cpu_attention = nullptr;
  Stream* compute = nullptr;
  const RowBuffers* rows = nullptr;
  AttentionPlan* plan = nullptr;
  LogitsStage* logits = nullptr;
};

// All of one engine, idle, and nothing in its cache: the profile overwrites any block and all activations.
// Single fields are rank 0's; shards do at once what is measured, and the slowest of them counts. plan has
// room for max_rows rows and sequences and for all blocks of the gpu tier.
struct ProfileParts {
  Device* device = nullptr;
  Ops* ops = nullptr;
  const Decoder* decoder = nullptr;
  const KvBooks* books = nullptr;
  KvMemory* memory = nullptr;
  CpuAttention* cpu_attention = nullptr;  // null: the cpu tier is not measured
  Stream* compute = nullptr;
  Stream* copy = nullptr;
  const RowBuffers* rows = nullptr;
  AttentionPlan* plan = nullptr;
  LogitsStage* logits = nullptr;
  int64_t max_rows = 0;            // of an iteration; rows hold as many
  int64_t max_context = 0;         // of a request
  std::vector<ShardParts> others;  // of ranks 1, 2, ...: empty for a whole model
  // work(rank) for every rank, in the thread that enqueues for it. Blocks until all are done. Empty: without
  // others.
  std::function<void(const std::function<void(size_t rank)>& work)> on_all;
};

// By rank.
std::vector<ShardParts> ShardsOf(const ProfileParts& parts);
// ProfileParts::on_all, for a whole model too.
void OnAllShards(const ProfileParts& parts, const std::function<void(size_t rank)>& work);

}  // namespace tandem
