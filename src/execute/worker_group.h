// The shards of a model, an executor each, as one executor: every plan goes to all of them, and its result is
// that of rank 0, who samples.
//
//   engine thread   Enter all | Run all ..................... Finish: all have ended | Collect all
//   shard 0         embed + | post + ... | logits gathered, sampling, tokens to all
//   shard 1         embed + | post + ... | logits gathered, .........
//
// + are sums over the shards (collective/collective.h), which keep the streams in step. Block tables, cohorts
// and moves are the same everywhere, since the plan is; only heads differ. What CPU attention of a shard
// decides is agreed upon: who rides, by the least of all (execute/riding_pass.h); a stall of one is a stall
// of all.
//
// Shards may be in processes of their own (execute/remote_executor.h): each step is then a message.
//
// A group of one is its executor, with nothing around it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "collective/rank_threads.h"
#include "execute/executor.h"
#include "execute/iteration_result.h"
#include "execute/shard_executor.h"
#include "execute/stall_watch.h"
#include "plan/iteration_input.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Engine thread only. All methods as Executor's, which have the contract.
class WorkerGroup {
 public:
  // others: of ranks 1, 2, ..., in this process or in others. group: what they exchange through, outlives the
  // executors; null for one. own_threads: each is told to start in a thread of its own, which in this process
  // takes ops and a device of its own.
  WorkerGroup(std::unique_ptr<Executor> rank0, std::vector<std::unique_ptr<ShardExecutor>> others,
              CollectiveGroup* group, bool own_threads = false);

  void WarmUp();
  Status Start(IterationInput input);
  bool MayRunAhead() const;
  bool AwaitEnd(std::chrono::microseconds timeout);
  // A shard that does not answer gives a result that has nothing but its failure; nothing is to be started
  // from then on.
  IterationResult Finish();
  bool DropCohort(CohortId id);
  bool CpuTierUsable();

  // Of this process, by rank.
  std::span<Executor* const> local() const { return local_; }
  // The others are alike, with as much to do.
  Executor& rank0() { return *rank0_; }
  CpuAttention* cpu_attention() { return rank0().cpu_attention(); }
  // Calls work for every rank, beside each other if they have threads of their own: whoever enqueues for a
  // rank does it there.
  void OnAll(const std::function<void(size_t rank)>& work);

 private:
  bool is_one() const { return executors_.size() == 1; }
  bool AllEndWithin(std::chrono::microseconds time);
  StallWatch::Look LookAtOldest();
  // Once the exchange has failed: whether all streams come to their end all the same.
  std::optional<Error> Failure();

  // Whether exchange that knows no bound itself has held up the iteration for too long: ends it then.
  bool HangsSince(std::chrono::steady_clock::time_point progress);

  std::vector<std::unique_ptr<ShardExecutor>> executors_;
  Executor* rank0_;  // the first
  std::vector<Executor*> local_;
  CollectiveGroup* group_;
  std::unique_ptr<RankThreads> threads_;  // null: all enqueue in the caller's
};

}  // namespace tandem
