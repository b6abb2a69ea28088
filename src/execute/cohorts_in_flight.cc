// How Executor takes cohorts from one iteration to the next, and what becomes of them if CPU attention
// stalls.

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "execute/executor.h"
#include "execute/running_iteration.h"

namespace tandem {

Status Executor::EnterCohorts(const IterationPlan& plan, const FindRequest& find_request) {
  for (const CohortId id : plan.dropped)
    TANDEM_CHECK(!cohorts_.contains(id), "cohort {} was to be dropped before", id);
  for (const CohortStep& step : plan.cohorts) {
    const auto found = cohorts_.find(step.cohort);
    if (found != cohorts_.end()) {
      TANDEM_CHECK(found->second->cursor == step.cursor && found->second->rows == step.rows,
                   "cohort {} is at layer {}, the plan says {} or names other rows", step.cohort,
                   found->second->cursor, step.cursor);
      continue;
    }
    TANDEM_CHECK(step.cursor == kEntry, "cohort {} is unknown at layer {}", step.cohort, step.cursor);
    if (step.visits.empty()) continue;
    TANDEM_CHECK(cohort_pool_ != nullptr, "a cohort without a cpu tier");
    TANDEM_ASSIGN_OR_RETURN(auto cohort, cohort_pool_->Take(static_cast<int64_t>(step.rows.size())));
    std::vector<int32_t> token_ids;
    token_ids.reserve(step.rows.size());
    for (const DecodeRow& row : step.rows)
      token_ids.push_back(find_request(row.sequence).TokenAt(row.position));
    cohort->Begin(step.rows, token_ids);
    cohort->inputs.Upload(*compute_stream_);
    cohorts_.emplace(step.cohort, std::move(cohort));
  }
  return {};
}

void Executor::PrepareRiders(const IterationPlan& plan) {
  std::vector<Rider> riders;
  for (size_t i = 0; i < plan.cohorts.size(); ++i) {
    const CohortStep& step = plan.cohorts[i];
    if (!step.rides) continue;
    const bool one_visit = step.visits.size() == 1 && step.visits[0] == Visit{step.cursor, step.cursor};
    TANDEM_CHECK(riding_ != nullptr && one_visit && !plan.main.empty(),
                 "cohort {} cannot ride: {} visits at layer {}", step.cohort, step.visits.size(),
                 step.cursor);
    riders.push_back({.step = i, .cohort = cohorts_.at(step.cohort).get()});
  }
  if (riding_) riding_->Begin(std::move(riders));
}

// Activations and rows of logits of the cohorts that make visits of their own.
void Executor::PrepareVisits(const IterationPlan& plan, const FindRequest& find_request) {
  logits_stage_->BeginIteration();
  logits_stage_->Prepare(&running_->main.logits);
  int64_t num_rows = 0;
  for (const CohortStep& step : plan.cohorts) {
    if (step.rides || step.visits.empty()) continue;
    Cohort& cohort = *cohorts_.at(step.cohort);
    cohort.BorrowActivations(cohort_buffers_, num_rows);
    num_rows += static_cast<int64_t>(step.rows.size());
    LogitsWork& work = running_->cohort_logits[step.cohort];
    if (step.visits.back().layer != decoder_->config().num_layers - 1) continue;
    for (size_t i = 0; i < step.rows.size(); ++i)
      work.AddSample(static_cast<int32_t>(i), find_request(step.rows[i].sequence));
    logits_stage_->Prepare(&work);
  }
  logits_stage_->Upload(*compute_stream_);
}

void Executor::Forget(CohortId id) {
  const auto found = cohorts_.find(id);
  cohort_pool_->GiveBack(std::move(found->second));
  cohorts_.erase(found);
}

bool Executor::DropCohort(CohortId id) {
  TANDEM_CHECK(running_ == nullptr, "cohort {} dropped amid an iteration", id);
  const auto found = cohorts_.find(id);
  if (found == cohorts_.end()) return true;
  CpuTierRows& rows = *found->second->cpu_rows;
  // What the device has armed is computed. What it has not, it never will.
  bool answered = AwaitCpuAttention([&] { return !rows.OwesOutput(); });
  if (answered) {
    rows.Withdraw();
    answered = AwaitCpuAttention([&] { return rows.withdrawn(); });
  }
  if (!answered) {
    AbortCpuRows(false);
    AbandonCohorts();
    return false;
  }
  rows.EndWithdraw();
  Forget(id);
  return true;
}

std::chrono::milliseconds Executor::StallLook() const {
  return std::clamp(stall_timeout_ / 4, std::chrono::milliseconds(1), std::chrono::milliseconds(50));
}

bool Executor::AwaitIteration(const IterationPlan& plan) {
  const auto waits = [](const CohortStep& step) { return !step.rides && !step.visits.empty(); };
  if (plan.main.cpu_decodes.empty() && std::none_of(plan.cohorts.begin(), plan.cohorts.end(), waits))
    return true;
  // Attention that waits for Q/K/V is not what holds the device up.
  const auto owes_output = [&] {
    if (!plan.main.cpu_decodes.empty() && main_cpu_rows_->OwesOutput()) return true;
    return std::any_of(plan.cohorts.begin(), plan.cohorts.end(), [&](const CohortStep& step) {
      return waits(step) && cohorts_.at(step.cohort)->cpu_rows->OwesOutput();
    });
  };
  // By looks, not by the clock: if the whole process was stopped for a while, nobody had time to answer.
  const std::chrono::milliseconds look = StallLook();
  std::chrono::milliseconds waited{0};
  int64_t num_tasks = -1;
  while (!iteration_end_->SynchronizeFor(look)) {
    const int64_t tasks_now = cpu_attention_->stats().num_tasks;
    const bool progress = tasks_now != num_tasks || !owes_output();
    num_tasks = tasks_now;
    waited = progress ? std::chrono::milliseconds(0) : waited + look;
    if (waited >= stall_timeout_) return false;
  }
  return true;
}

bool Executor::AwaitCpuAttention(const std::function<bool()>& done) {
  constexpr std::chrono::microseconds kLongestNap{1000};
  std::chrono::microseconds nap{20};
  std::chrono::microseconds waited{0};
  int64_t num_tasks = -1;
  while (!done()) {
    std::this_thread::sleep_for(nap);
    const int64_t tasks_now = cpu_attention_->stats().num_tasks;
    waited = tasks_now != num_tasks ? std::chrono::microseconds(0) : waited + nap;
    num_tasks = tasks_now;
    nap = std::min(2 * nap, kLongestNap);
    if (waited >= stall_timeout_) return false;
  }
  return true;
}

bool Executor::CohortsStalled(std::chrono::nanoseconds iteration) {
  const bool owes_output = std::any_of(cohorts_.begin(), cohorts_.end(), [](const auto& entry) {
    return entry.second->cpu_rows->OwesOutput();
  });
  const int64_t tasks_now = cpu_attention_ ? cpu_attention_->stats().num_tasks : 0;
  const bool progress = tasks_now != last_num_tasks_ || !owes_output;
  last_num_tasks_ = tasks_now;
  // An iteration counts as one look.
  const auto look = std::min<std::chrono::nanoseconds>(iteration, StallLook());
  without_answer_ = progress ? std::chrono::nanoseconds(0) : without_answer_ + look;
  return without_answer_ >= stall_timeout_;
}

void Executor::AbortCpuRows(bool main) {
  stalled_ = true;
  if (main) main_cpu_rows_->Abort();
  for (auto& [id, cohort] : cohorts_) cohort->cpu_rows->Abort();
}

bool Executor::CpuTierUsable() {
  if (!stalled_) return true;
  if (!cpu_attention_->idle()) return false;
  main_cpu_rows_->Reset();
  for (auto& cohort : abandoned_) {
    cohort->cpu_rows->Reset();
    cohort_pool_->GiveBack(std::move(cohort));
  }
  abandoned_.clear();
  stalled_ = false;
  return true;
}

void Executor::CollectRiders() {
  if (!riding_) return;
  const MainRows& main = running_->main;
  size_t next_result = main.first_rider_result;
  for (size_t i = 0; i < riding_->riders().size(); ++i) {
    const Rider& rider = riding_->riders()[i];
    Running::Ridden& ridden = running_->ridden[rider.step];
    const bool ends = rider.cohort->cursor + 1 == decoder_->config().num_layers;
    const size_t num_results = ends ? rider.cohort->rows.size() : 0;
    ridden.joined = riding_->Joined(i);
    ridden.results = std::span(running_->main.logits.results).subspan(next_result, num_results);
    next_result += num_results;
    if (ridden.joined) rider.cohort->cursor = ends ? kEntry : rider.cohort->cursor + 1;
  }
  riding_->Clear();
}

void Executor::CollectCohorts(IterationResult* result) {
  const IterationPlan& plan = running_->plan;
  if (result->stalled) {
    for (const CohortStep& step : plan.cohorts) result->cohorts.push_back({.cohort = step.cohort});
    std::vector<SequenceResult> failed = AbandonCohorts();
    result->sequences.insert(result->sequences.end(), failed.begin(), failed.end());
    return;
  }
  running_->ridden.resize(plan.cohorts.size());
  CollectRiders();
  for (size_t s = 0; s < plan.cohorts.size(); ++s) {
    const CohortStep& step = plan.cohorts[s];
    CohortProgress& progress = result->cohorts.emplace_back();
    progress.cohort = step.cohort;
    progress.cursor = step.cursor;
    const Running::Ridden& ridden = running_->ridden[s];
    progress.num_visits =
        step.rides ? static_cast<int64_t>(ridden.joined) : static_cast<int64_t>(step.visits.size());
    if (progress.num_visits == 0) continue;
    progress.cursor = cohorts_.at(step.cohort)->cursor;
    if (progress.cursor != kEntry) continue;
    const std::span<SampledToken> tokens =
        step.rides ? ridden.results : std::span(running_->cohort_logits.at(step.cohort).results);
    for (size_t i = 0; i < step.rows.size(); ++i) {
      result->sequences.push_back({.sequence = step.rows[i].sequence,
                                   .num_computed = step.rows[i].position + 1,
                                   .token = std::move(tokens[i])});
    }
    Forget(step.cohort);
  }
}

// All in flight, with a visit in this iteration or without: AbortCpuRows has taken their O from them.
std::vector<SequenceResult> Executor::AbandonCohorts() {
  std::vector<SequenceResult> failed;
  for (auto& [id, cohort] : cohorts_) {
    for (const DecodeRow& row : cohort->rows)
      failed.push_back({.sequence = row.sequence, .num_computed = row.position, .failed = true});
    abandoned_.push_back(std::move(cohort));
  }
  cohorts_.clear();
  if (riding_) riding_->Clear();
  without_answer_ = std::chrono::nanoseconds(0);
  return failed;
}

}  // namespace tandem
