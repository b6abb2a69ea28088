#include "execute/worker_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

// An iteration of one shard must have gone as those of the others.
void CheckAlike(const IterationResult& result, const IterationResult& other, size_t rank) {
  TANDEM_CHECK(
      result.cohorts.size() == other.cohorts.size() && result.sequences.size() == other.sequences.size(),
      "shard {}: results of {} sequences and {} cohorts, shard 0 has {} and {}", rank, other.sequences.size(),
      other.cohorts.size(), result.sequences.size(), result.cohorts.size());
  for (size_t i = 0; i < result.cohorts.size(); ++i) {
    TANDEM_CHECK(result.cohorts[i].cursor == other.cohorts[i].cursor &&
                     result.cohorts[i].num_visits == other.cohorts[i].num_visits,
                 "cohort {} is at layer {} after {} visits on shard {}, at {} after {} on shard 0",
                 result.cohorts[i].cohort, other.cohorts[i].cursor, other.cohorts[i].num_visits, rank,
                 result.cohorts[i].cursor, result.cohorts[i].num_visits);
  }
}

}  // namespace

WorkerGroup::WorkerGroup(std::unique_ptr<Executor> rank0, std::vector<std::unique_ptr<ShardExecutor>> others,
                         CollectiveGroup* group, bool own_threads)
    : executors_(std::move(others)), rank0_(rank0.get()), group_(group) {
  executors_.insert(executors_.begin(), std::move(rank0));
  for (const auto& executor : executors_) {
    if (auto* local = dynamic_cast<Executor*>(executor.get())) local_.push_back(local);
  }
  if (own_threads && !is_one()) threads_ = std::make_unique<RankThreads>(static_cast<int>(executors_.size()));
  TANDEM_CHECK(is_one() || group_ != nullptr, "{} shards without exchange", executors_.size());
}

void WorkerGroup::WarmUp() {
  for (const auto& executor : executors_) executor->WarmUp();
}

Status WorkerGroup::Start(IterationInput input) {
  if (is_one()) return rank0_->Start(std::move(input));
  std::vector<IterationInput> inputs(executors_.size(), input);
  // Moves are made on all, whoever has no room for cohorts.
  std::vector<Status> entered(executors_.size());
  OnAll([&](size_t rank) { entered[rank] = executors_[rank]->Enter(&inputs[rank]); });
  for (Status& status : entered) TANDEM_RETURN_IF_ERROR(std::move(status));
  OnAll([&](size_t rank) { executors_[rank]->Run(std::move(inputs[rank])); });
  return {};
}

void WorkerGroup::OnAll(const std::function<void(size_t rank)>& work) {
  if (threads_) return threads_->Run([&](int rank) { work(static_cast<size_t>(rank)); });
  for (size_t rank = 0; rank < executors_.size(); ++rank) work(rank);
}

bool WorkerGroup::MayRunAhead() const {
  // The others run the same.
  return rank0_->MayRunAhead();
}

bool WorkerGroup::AwaitEnd(std::chrono::microseconds timeout) {
  // They end together.
  return rank0_->AwaitEnd(timeout);
}

bool WorkerGroup::AllEndWithin(std::chrono::microseconds time) {
  return std::ranges::all_of(executors_, [&](const auto& executor) { return executor->EndsWithin(time); });
}

StallWatch::Look WorkerGroup::LookAtOldest() {
  // A shard that stalls holds up all others: soon nobody ends any task.
  StallWatch::Look all;
  for (const auto& executor : executors_) {
    const StallWatch::Look look = executor->LookAtOldest();
    all.num_tasks += look.num_tasks;
    all.owes_output = all.owes_output || look.owes_output;
  }
  return all;
}

std::optional<Error> WorkerGroup::Failure() {
  std::optional<Error> failure = group_->failure();
  // Whoever waits for the others is released now. The one that did not come may never be.
  constexpr std::chrono::milliseconds kGrace{500};
  if (failure) static_cast<void>(AllEndWithin(kGrace));
  return failure;
}

bool WorkerGroup::HangsSince(std::chrono::steady_clock::time_point progress) {
  const auto limit = group_->unbounded_timeout();
  if (!limit || std::chrono::steady_clock::now() - progress < *limit) return false;
  group_->Abort(fmt::format("the {} shards have not ended what they compute together within {:g} s",
                            executors_.size(), std::chrono::duration<double>(*limit).count()));
  return true;
}

IterationResult WorkerGroup::Finish() {
  if (is_one()) return rank0_->Finish();
  const StallWatch& watch = rank0_->stall_watch();
  const std::chrono::microseconds pace = watch.longest_look();
  auto progress = std::chrono::steady_clock::now();
  int64_t num_tasks = -1;
  bool stalled = !watch.Await(
      {.first = pace, .slowest = pace},
      [&](std::chrono::microseconds time) {
        return AllEndWithin(time) || group_->failure() || HangsSince(progress);
      },
      [&] {
        const StallWatch::Look look = LookAtOldest();
        if (look.num_tasks != std::exchange(num_tasks, look.num_tasks))
          progress = std::chrono::steady_clock::now();
        return look;
      });
  if (auto failure = Failure()) return {.failure = std::move(failure)};
  // All, before any of them is waited for.
  if (stalled) {
    for (const auto& executor : executors_) executor->AbortOldest();
  }
  bool cohorts_stalled = false;
  for (const auto& executor : executors_) cohorts_stalled |= executor->CompleteOldest(stalled);
  if (auto failure = Failure()) return {.failure = std::move(failure)};
  if (cohorts_stalled) {
    stalled = true;
    for (const auto& executor : executors_) executor->AbortCohorts();
  }
  IterationResult result = executors_.front()->CollectOldest(stalled);
  for (size_t rank = 1; rank < executors_.size(); ++rank) {
    const IterationResult other = executors_[rank]->CollectOldest(stalled);
    // A process that has died since.
    if (auto failure = Failure()) return {.failure = std::move(failure)};
    CheckAlike(result, other, rank);
    // What is read is of all; times are of rank 0, whom the costs are of.
    result.cpu_attention.kv_bytes += other.cpu_attention.kv_bytes;
    result.cpu_attention.attended_kv_bytes += other.cpu_attention.attended_kv_bytes;
  }
  return result;
}

bool WorkerGroup::DropCohort(CohortId id) {
  if (is_one()) return executors_.front()->DropCohort(id);
  // Of a group that has failed nothing is collected any more.
  if (group_->failure()) return true;
  std::vector<ShardExecutor*> dropped;
  for (const auto& executor : executors_) {
    if (executor->DropCohort(id)) dropped.push_back(executor.get());
  }
  if (dropped.size() == executors_.size()) return true;
  for (ShardExecutor* executor : dropped) executor->FailCohorts();
  return false;
}

bool WorkerGroup::CpuTierUsable() {
  bool usable = true;
  for (const auto& executor : executors_) usable = executor->CpuTierUsable() && usable;
  return usable;
}

}  // namespace tandem
