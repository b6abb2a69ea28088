// The shards of one engine: memory of both tiers and an executor each, and how they share the CPU.
#pragma once

#include <memory>
#include <optional>
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

struct ShardThreads {
  int num_threads = 0;
  int num_taken = 0;  // by shards of lower ranks on the same nodes
};
// Of num_threads threads of a host: one at least. nodes: LoadedModel::shard_nodes; empty: all are on the
// same.
ShardThreads ThreadsOf(const Shard& shard, int num_threads, const std::vector<std::vector<int>>& nodes);
// The same of num_threads threads of all shards together, or where that is 0 of what a host has, which those
// of other processes on the same host share. on_host: PlaceOnHost.
ShardThreads ThreadsOf(const std::optional<Shard>& on_host, const Shard& shard, int num_threads, int of_host,
                       const std::vector<std::vector<int>>& nodes);
// The place of this process' shard among those of its host; absent where all are in this process.
std::optional<Shard> PlaceOnHost(const EngineOptions& options);

// By rank, of this process. cache: of all together; a shard has as many blocks, each with its KV heads.
// Errors: kResourceExhausted.
Result<std::vector<std::unique_ptr<KvMemory>>> CreateShardMemories(const LoadedModel& model,
                                                                   const KvCacheOptions& cache);

// options: of all together. What the arguments point to outlives the group. Of processes rank 0 calls it,
// with what the others wait for in FollowRank0. Errors: kResourceExhausted.
Result<std::unique_ptr<WorkerGroup>> CreateWorkerGroup(const LoadedModel& model,
                                                       const std::vector<std::unique_ptr<KvMemory>>& memories,
                                                       const ExecutorOptions& options);

// The whole life of a shard in a process of its own, which is not rank 0: loads its part of the model, has
// memory and executor as rank 0 tells it, and obeys until rank 0 says that it is over. options: as those of
// rank 0. Errors: what rank 0 has heard of, and kUnavailable after a failure of the processes.
Status FollowRank0(EngineOptions options);

// Of ranks 1, 2, ... of this process, for measurements while nothing runs.
std::vector<ShardParts> OtherShardParts(const LoadedModel& model,
                                        const std::vector<std::unique_ptr<KvMemory>>& memories,
                                        const WorkerGroup& workers);

}  // namespace tandem
