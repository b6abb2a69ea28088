// Cohorts amid a token while a plan is made, and the rows that enter the next one (APEX section 3.3).
//
//   iteration    i          i+1        i+2
//   cohort a     0 1 [2] 3  0 1 2 [3]  ends, its rows enter again
//   cohort b     0 [1] 2 3  0 1 [2] 3  0 1 2 [3]
//   cohort c     [e]        [0]        0 [1] 2 3          [.] rides at this boundary, e: enters
//
// At most one cohort enters an iteration, some layers behind the one before, so they are staggered: each
// layer of the GPU sees a few more rows, and each layer's attention has a whole iteration. They are balanced
// by the tokens that they attend: a cohort takes rows until it has its share of the cpu tier's tokens. What
// its rows share and read once is no reason to take more: others would have to wait for a place in a cohort.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/iteration_load.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "planning/cpu_filling.h"
#include "planning/schedule_state.h"
#include "planning/tier_books.h"

namespace tandem {

class Riders {
 public:
  struct Cohort {
    const InFlightCohort* in_flight = nullptr;
    int64_t num_rows = 0;
    int64_t kv_tokens = 0;  // that they read
    RiderWork work;         // behind their next visit
    bool parked = false;    // no room at its boundary
    int64_t cursor() const { return in_flight->cursor; }
  };

  Riders() = default;
  // state and costs outlive it. books: says which cohorts are dropped.
  Riders(const ScheduleState& state, const LayerCosts& costs, const TierBooks& books);

  // Furthest first: what is left of their tokens costs least (APEX section 3.4, partial progress
  // prioritization).
  const std::vector<Cohort>& cohorts() const { return cohorts_; }
  bool empty() const { return cohorts_.empty() && entering_.empty(); }

  // Of `free` rows, oldest first, enough for a cohort that enters now, if one should. cpu_kv_tokens: that all
  // rows which may ride attend. fewest_rows: of a cohort, if there are so many.
  void Enter(const CpuRows& free, int64_t cpu_kv_tokens, const LayerCosts& costs,
             const ScheduleLimits& limits, int64_t fewest_rows);
  const std::vector<RowSpan>& entering() const { return entering_; }

  // Rows of all cohorts, those that enter included.
  int64_t num_rows() const;
  // At a boundary where any would ride.
  int64_t usual_rows() const;

  // The visits that the entering rows and all cohorts but [own_begin, own_end) make if the CPU is in time.
  // load: has the main sub-batch, which is not empty.
  void AddTo(size_t own_begin, size_t own_end, const LayerCosts& costs, IterationLoad* load) const;
  // Their steps.
  void WriteRiding(size_t own_begin, size_t own_end, IterationPlan* plan) const;
  // Steps of the others, which make the visits that are left of their tokens.
  void WriteOwn(size_t own_begin, size_t own_end, int64_t num_layers, IterationPlan* plan) const;

  // An id that no cohort has.
  CohortId FreshId() const;

 private:
  std::vector<InFlightCohort> const* all_ = nullptr;
  std::vector<Cohort> cohorts_;
  std::vector<RowSpan> entering_;
  RiderWork entering_work_;
};

}  // namespace tandem
