// How requests end that the engine cannot go on with.

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/engine_loop.h"

namespace tandem {

void EngineLoop::FailRequest(RequestId id, const Error& error) {
  RequestOutput output;
  output.id = id;
  output.finish_reason = FinishReason::kError;
  output.error = error;
  OutputCallback callback = std::move(requests_.at(id)->callback);
  Forget(id);
  callback(std::move(output));
}

void EngineLoop::FailCpuTier() {
  const Error error =
      MakeError(ErrorCode::kUnavailable,
                "CPU attention did not answer in time; the requests that it serves have ended");
  LogError("{}", error.message);
  state_.cpu_tier_usable = false;
  state_.cohorts.clear();
  cpu_tier_fails_ = false;
  planned_ahead_.reset();
  DeliverOutputs();
  std::vector<RequestId> concerned;
  for (const ScheduledSequence& sequence : state_.running) {
    if (books_->tier_of(sequence.id) == Tier::kCpu) concerned.push_back(sequence.id);
  }
  for (const RequestId id : concerned) FailRequest(id, error);
}

void EngineLoop::RecoverCpuTier() {
  if (state_.cpu_tier_usable || !executor_->CpuTierUsable()) return;
  LogInfo("CPU attention is back");
  for (const SequenceId id : stalled_) books_->Release(id);
  stalled_.clear();
  state_.cpu_tier_usable = true;
  planned_ahead_.reset();
  PublishStats();
}

void EngineLoop::FailCohorts(const IterationPlan& plan, const Error& error) {
  // Nothing ran. Only a cohort that enters needs memory at this point, so its requests end here; those in
  // flight go on.
  DeliverOutputs();
  const auto in_flight = [this](const CohortStep& step) {
    return std::any_of(state_.cohorts.begin(), state_.cohorts.end(),
                       [&](const InFlightCohort& cohort) { return cohort.cohort == step.cohort; });
  };
  const bool any_enters = std::any_of(plan.cohorts.begin(), plan.cohorts.end(),
                                      [&](const auto& step) { return !in_flight(step); });
  std::vector<CohortStep> failed;
  for (const CohortStep& step : plan.cohorts) {
    if (!any_enters || !in_flight(step)) failed.push_back(step);
  }
  for (const CohortStep& step : failed) {
    DropCohort(step.cohort);
    for (const DecodeRow& row : step.rows) FailRequest(row.sequence, error);
  }
  if (cpu_tier_fails_) FailCpuTier();
}

}  // namespace tandem
