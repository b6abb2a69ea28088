// The shards of one engine: memory of both tiers and an executor each, and how they share the CPU.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/shard.h"
#include "engine/loaded_model.h"
#include "execute/executor_options.h"
#include "execute/worker_group.h"
#include "kv/kv_cache_options.h"
#include "kv/kv_memory.h"
#include "profile/profile_parts.h"

namespace tandem {

// Of num_threads threads: one at least.
struct ShardThreads {
  int num_threads = 0;
  int num_taken = 0;  // by shards of lower ranks
};
ShardThreads ThreadsOf(const Shard& shard, int num_threads);

// By rank. cache: of all together; a shard has as many blocks, each with its KV heads. Errors:
// kResourceExhausted.
Result<std::vector<std::unique_ptr<KvMemory>>> CreateShardMemories(const LoadedModel& model,
                                                                   const KvCacheOptions& cache);

// options: of all together. What the arguments point to outlives the group. Errors: kResourceExhausted.
Result<std::unique_ptr<WorkerGroup>> CreateWorkerGroup(const LoadedModel& model,
                                                       const std::vector<std::unique_ptr<KvMemory>>& memories,
                                                       const ExecutorOptions& options);

// Of ranks 1, 2, ..., for measurements while nothing runs.
std::vector<ShardParts> OtherShardParts(const LoadedModel& model,
                                        const std::vector<std::unique_ptr<KvMemory>>& memories,
                                        WorkerGroup* workers);

}  // namespace tandem
