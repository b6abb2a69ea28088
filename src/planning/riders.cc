#include "planning/riders.h"

#include <algorithm>
#include <utility>

#include "base/round_up.h"
#include "perf/time_model.h"

namespace tandem {
Riders::Riders(const ScheduleState& state, const LayerCosts& costs, const TierBooks& books)
    : all_(&state.cohorts) {
  const TimeModel time(costs);
  const std::vector<CohortId>& dropped = books.dropped();
  for (const InFlightCohort& cohort : state.cohorts) {
    const bool is_dropped = std::find(dropped.begin(), dropped.end(), cohort.cohort) != dropped.end();
    if (is_dropped || cohort.in_transit()) continue;
    const int64_t num_rows = NumRowsOf(cohort.rows);
    const int64_t kv_tokens = ReadTokensOf(cohort.rows, costs);
    cohorts_.push_back({.in_flight = &cohort,
                        .num_rows = num_rows,
                        .kv_tokens = kv_tokens,
                        .work = time.RiderWorkOf(cohort.cursor, num_rows, kv_tokens)});
  }
  std::stable_sort(cohorts_.begin(), cohorts_.end(),
                   [](const Cohort& a, const Cohort& b) { return a.cursor() > b.cursor(); });
  int64_t cursor = kEntry;
  int64_t rows_there = 0;
  for (Cohort& cohort : cohorts_) {
    if (cohort.cursor() != cursor) rows_there = 0;
    cursor = cohort.cursor();
    cohort.parked = rows_there + cohort.num_rows > state.limits.max_rider_rows;
    if (cohort.parked) continue;
    rows_there += cohort.num_rows;
  }
}

void Riders::Enter(const CpuRows& free, int64_t cpu_kv_tokens, const LayerCosts& costs,
                   const ScheduleLimits& limits, int64_t fewest_rows) {
  const int64_t num_visits = limits.num_layers + 1;
  const int64_t most_cohorts = limits.num_riding_cohorts();
  const int64_t all_rows = free.size() + num_rows();
  const int64_t num_cohorts = std::clamp<int64_t>(all_rows / fewest_rows, 1, most_cohorts);
  if (static_cast<int64_t>(cohorts_.size()) >= most_cohorts) return;
  // As far behind the one before as all are from one another when they are spread evenly.
  if (!cohorts_.empty() && cohorts_.back().cursor() + 1 < num_visits / num_cohorts) return;
  // Each must be able to make visits of its own, should nobody pass by any more.
  const int64_t most =
      std::min({free.size(), limits.max_rider_rows, limits.max_cohort_rows, limits.max_num_batched_tokens});
  int64_t num_rows = 0;
  while (num_rows < most && free.KvTokens(0, num_rows) * num_cohorts < cpu_kv_tokens) ++num_rows;
  entering_.assign(free.rows().begin(), free.rows().begin() + num_rows);
  entering_work_ =
      TimeModel(costs).RiderWorkOf(kEntry, num_rows, free.ReadTokens(SharedReads(costs), 0, num_rows));
}

int64_t Riders::num_rows() const {
  auto sum = static_cast<int64_t>(entering_.size());
  for (const Cohort& cohort : cohorts_) sum += cohort.num_rows;
  return sum;
}

int64_t Riders::usual_rows() const {
  int64_t num_rows = static_cast<int64_t>(entering_.size());
  int64_t num_boundaries = entering_.empty() ? 0 : 1;
  // Furthest first: those at the same boundary follow each other.
  int64_t cursor = kEntry - 1;
  for (const Cohort& cohort : cohorts_) {
    if (cohort.parked) continue;
    num_rows += cohort.num_rows;
    if (cohort.cursor() != cursor) ++num_boundaries;
    cursor = cohort.cursor();
  }
  return num_boundaries == 0 ? 0 : DivideUp(num_rows, num_boundaries);
}

void Riders::AddTo(size_t own_begin, size_t own_end, const LayerCosts& costs, IterationLoad* load) const {
  RiderSum sum(costs, load);
  int64_t cursor = kEntry;
  int64_t rows_there = 0;
  for (size_t i = 0; i < cohorts_.size(); ++i) {
    const Cohort& cohort = cohorts_[i];
    if (cohort.parked || (i >= own_begin && i < own_end)) continue;
    if (cohort.cursor() != cursor) {
      sum.AddBoundary(rows_there);
      rows_there = 0;
    }
    cursor = cohort.cursor();
    rows_there += cohort.num_rows;
    sum.AddVisit(cursor, cohort.num_rows, cohort.work);
  }
  sum.AddBoundary(rows_there);
  const auto num_entering = static_cast<int64_t>(entering_.size());
  sum.AddBoundary(num_entering);
  if (num_entering > 0) sum.AddVisit(kEntry, num_entering, entering_work_);
}

void Riders::WriteOwn(size_t own_begin, size_t own_end, int64_t num_layers, IterationPlan* plan) const {
  for (size_t i = own_begin; i < own_end; ++i) {
    const InFlightCohort& cohort = *cohorts_[i].in_flight;
    CohortStep step{.cohort = cohort.cohort, .rows = cohort.rows, .cursor = cohort.cursor, .visits = {}};
    for (int64_t layer = cohort.cursor; layer < num_layers; ++layer) step.visits.push_back({layer, layer});
    plan->cohorts.push_back(std::move(step));
  }
}

void Riders::WriteRiding(size_t own_begin, size_t own_end, IterationPlan* plan) const {
  const auto ride = [&](CohortId id, const std::vector<RowSpan>& rows, int64_t cursor) {
    plan->cohorts.push_back(
        {.cohort = id, .rows = rows, .cursor = cursor, .visits = {{cursor, cursor}}, .rides = true});
  };
  for (size_t i = 0; i < cohorts_.size(); ++i) {
    const InFlightCohort& cohort = *cohorts_[i].in_flight;
    if (cohorts_[i].parked || (i >= own_begin && i < own_end)) continue;
    ride(cohort.cohort, cohort.rows, cohort.cursor);
  }
  // FreshId is for a cohort of another kind in the same plan: this one takes the next.
  if (!entering_.empty()) ride(FreshId() + 1, entering_, kEntry);
}

CohortId Riders::FreshId() const {
  CohortId id = 0;
  if (all_ == nullptr) return id;
  for (const InFlightCohort& cohort : *all_) id = std::max(id, cohort.cohort + 1);
  return id;
}

}  // namespace tandem
