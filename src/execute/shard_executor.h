// An executor of a shard as its group sees it (execute/worker_group.h): in this process, or in another one.
#pragma once

#include <chrono>

#include "base/result.h"
#include "execute/iteration_result.h"
#include "execute/stall_watch.h"
#include "plan/iteration_input.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Engine thread only, or with a thread a shard that thread. Each step on all shards before the next: an
// iteration starts with Enter and Run, after an Enter that failed nothing is to run, and finishes with: await
// the end of the oldest, Abort it if CPU attention has stalled, Complete it, AbortCohorts if it did not stall
// and they have, Collect.
class ShardExecutor {
 public:
  virtual ~ShardExecutor() = default;

  // As Executor's.
  virtual void WarmUp() = 0;
  virtual bool DropCohort(CohortId id) = 0;
  virtual bool CpuTierUsable() = 0;

  virtual Status Enter(IterationInput* input) = 0;
  virtual void Run(IterationInput input) = 0;
  // Whether the oldest has ended, within time.
  virtual bool EndsWithin(std::chrono::microseconds time) = 0;
  // At the CPU attention that the device waits for in the oldest.
  virtual StallWatch::Look LookAtOldest() = 0;
  virtual void AbortOldest() = 0;
  // Blocks until all of it has run. Whether CPU attention has stalled that nobody on the device waits for.
  virtual bool CompleteOldest(bool stalled) = 0;
  virtual void AbortCohorts() = 0;
  virtual IterationResult CollectOldest(bool stalled) = 0;
  // Forgets all cohorts, as a DropCohort that stalls does.
  virtual void FailCohorts() = 0;
};

}  // namespace tandem
