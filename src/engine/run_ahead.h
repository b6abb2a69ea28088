// Enqueueing the next iteration while one runs, so that the device goes from one to the other without the
// host: which plans may, and when.
//
//   device   [ iteration i             ][ i + 1                   ][ i + 2
//   thread    plan i+1 ....... start i+1 | results i, outputs i, plan i+2 .... start i+2 | results i+1
//                      news ^                                          news ^
//
// A row of i + 1 whose token i draws reads it in device memory. A sequence that i turns out to end is
// computed for nothing in i + 1. A new request is in i + 1 if it came before that was enqueued: so that is
// done late.
#pragma once

#include <array>
#include <cstdint>

#include "engine/iteration_inputs.h"
#include "perf/corrected_costs.h"
#include "plan/iteration_plan.h"
#include "request/request.h"

namespace tandem {

// Whether the input of a plan can be made before the tokens that it goes on from are known to the host: gpu
// rows only, and no preemptions, embeddings, grammars, echoes, and what goes by the tokens of the output
// (penalties, bad words).
bool MayRunAhead(const IterationPlan& plan, const FindRequest& find_request);

// When the iteration that runs will end. Engine thread only.
class RunAheadClock {
 public:
  using TimePoint = Clock::time_point;

  // costs: outlives the clock; null: none. An iteration of decodes is then taken to be as long as the last of
  // its kind, or shorter if it has fewer rows, one with prefills as the last of its kind by the number of
  // rows.
  explicit RunAheadClock(const CorrectedCosts* costs) : costs_(costs) {}

  // The device begins with the plan's iteration.
  void Begin(const IterationPlan& plan, TimePoint now);
  // It has ended.
  void End(const IterationPlan& plan, bool as_graph, TimePoint now);
  // What it took the host to take news and to enqueue an iteration behind the one that runs.
  void CountEnqueueUs(double us);
  // When the host is to begin with that: not so late that the device would wait.
  TimePoint StartAt() const;

 private:
  double PredictUs(const IterationPlan& plan) const;

  const CorrectedCosts* costs_;
  TimePoint begin_;
  double predicted_us_ = 0;  // 0: not known
  // Of iterations that have ended.
  bool decodes_as_graphs_ = false;
  struct Last {
    double us = 0;
    int64_t rows = 0;  // 0: there was none
  };
  std::array<Last, 2> last_;  // with prefills, of decodes only
  double mean_error_us_ = 0;  // |predicted - measured|
  double enqueue_us_ = 0;
};

}  // namespace tandem
