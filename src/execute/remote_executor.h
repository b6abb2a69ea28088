// The executor of a shard that is in another process: what rank 0 asks of it there, and there what obeys.
//
//   rank 0      Enter(input) ...... Run | EndsWithin ... Complete | Collect
//                 |        ^         |
//   rank r       Enter     status   Run, streams go on ............
#pragma once

#include <chrono>
#include <optional>

#include "collective/processes.h"
#include "execute/executor.h"
#include "execute/shard_executor.h"

namespace tandem {

// In the process of rank 0. Once the processes have failed every call ends at once, as if all were well: what
// has become of the iteration the failure says.
class RemoteExecutor : public ShardExecutor {
 public:
  // processes: outlives it.
  RemoteExecutor(Processes* processes, int rank) : processes_(processes), rank_(rank) {}

  void WarmUp() override;
  bool DropCohort(CohortId id) override;
  bool CpuTierUsable() override;
  Status Enter(IterationInput* input) override;
  void Run(IterationInput input) override;
  bool EndsWithin(std::chrono::microseconds time) override;
  StallWatch::Look LookAtOldest() override;
  void AbortOldest() override;
  bool CompleteOldest(bool stalled) override;
  void AbortCohorts() override;
  // Of sequences only what tells whether the shards went alike, of CPU attention what was read.
  IterationResult CollectOldest(bool stalled) override;
  void FailCohorts() override;

 private:
  enum class Patience { kBounded, kAsLongAsItLives };
  template <typename Reply, typename... Arguments>
  std::optional<Reply> Ask(Patience patience, uint8_t command, Arguments... arguments);

  Processes* const processes_;
  const int rank_;
};

// In the process of another rank: does what rank 0 asks for until it says that it is over. Error:
// kUnavailable after a failure of the processes.
Status ObeyRank0(Processes* processes, Executor* executor);

// Rank 0 says so to a rank, whatever that is at.
void SendEnd(Processes* processes, int rank);
bool IsEnd(const Message& message);

}  // namespace tandem
