// What processes with a shard each tell each other before their executors work: whether all is well so far,
// and what rank 0 has decided.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "collective/processes.h"
#include "engine/loaded_model.h"
#include "execute/executor_options.h"
#include "kv/kv_cache_options.h"
#include "kv/kv_memory.h"

namespace tandem {

// On all ranks at the same step; own: how it went here. What is wrong on another rank is an error of rank 0,
// which names the rank; the others get their own. Null: no processes.
Status AgreeThatAllIsWell(Processes* processes, Status own);

// What each process has, by rank. All ranks call it at the same step. Error: kUnavailable after a failure of
// the processes.
Result<std::vector<int64_t>> OfAllProcesses(Processes* processes, int64_t own);

struct ShardSetup {
  KvCacheOptions cache;     // of all shards together, these two
  ExecutorOptions options;  // without what is of a process
};

// Rank 0's. memory: its own.
Message SetupMessage(const LoadedModel& model, const KvMemory& memory, const ExecutorOptions& options);
// Errors: kInvalidArgument where this process has chosen something else for itself, kUnsupported where its
// processor lacks something.
Result<ShardSetup> ReadSetup(const Message& message, const LoadedModel& model);

}  // namespace tandem
