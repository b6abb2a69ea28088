// Cohorts in flight: from the visit of their entry to that of the last layer, over as many iterations as that
// takes.
//
//   pool -- Enter --> in flight -- Collect of the last visit, Drop --> pool
//                               -- Abandon --> abandoned -- Restore (CPU attention is idle) --> pool
//
// One may be in transit (execute/transit_cohort.h), which waits for no CPU attention.
//
// In an iteration a cohort rides (execute/riding_pass.h), makes visits with products of its own, or rests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "execute/cohort.h"
#include "execute/executor_options.h"
#include "execute/iteration_result.h"
#include "execute/running_iteration.h"
#include "execute/shared_parts.h"
#include "execute/stall_watch.h"
#include "execute/transit_cohort.h"
#include "model/row_batch.h"
#include "plan/iteration_input.h"

namespace tandem {

// Engine thread only. For an executor with a cpu tier. Before its end: Abort, and CPU attention is idle.
class CohortFlight {
 public:
  // options: complete. Errors: kResourceExhausted.
  static Result<std::unique_ptr<CohortFlight>> Create(const SharedParts& parts,
                                                      const ExecutorOptions& options);
  // Device memory that Create takes.
  static size_t BytesFor(const Decoder& decoder, const ExecutorOptions& options);

  // Has those of the plan that are not in flight enter, with their inputs on the way to the device. CHECKs
  // that the others are where the plan says. Errors: kResourceExhausted; those before it have entered.
  Status Enter(IterationInput* input);
  // Of the plan; all of them are in flight.
  std::vector<Rider> RidersOf(const IterationPlan& plan) const;

  // Blocks of the transit's slots that are taken by the cohort in transit.
  int64_t num_transit_blocks() const { return transit_->num_blocks(); }

  // Activations and rows of logits of those that make visits of their own. Those of the one in transit are
  // rows [num_main_rows, ...) of main_buffers.
  std::vector<OwnVisits> PrepareVisits(const IterationInput& input, const RowBuffers& main_buffers,
                                       int64_t num_main_rows);
  // Enqueues the visits at a boundary.
  void VisitAt(int64_t boundary, const IterationPlan& plan, std::vector<OwnVisits>* visits);
  // Once they have run: outcomes of those cohorts.
  static void CollectVisits(const IterationPlan& plan, std::vector<OwnVisits>* visits,
                            std::vector<CohortOutcome>* outcomes);
  // What the outcomes mean, and the results of those that have ended their token, which are forgotten.
  // visits: of the iteration of input.
  void Collect(const IterationInput& input, std::vector<OwnVisits>* visits,
               const std::vector<CohortOutcome>& outcomes, IterationResult* result);

  // Whether CPU attention owes output to any cohort.
  bool OwesOutput() const;
  // Forgets a cohort once its running attention has ended; unknown ids are ignored. False, and it is in
  // flight as before, if CPU attention stalls. While no iteration runs.
  bool Drop(CohortId id, const StallWatch& watch);

  // Releases every stream that waits for output.
  void Abort();
  // After an Abort: none is in flight any more. The failed results of their rows.
  std::vector<SequenceResult> Abandon();
  // Those that were abandoned may be used again: CPU attention is idle.
  void Restore();

 private:
  CohortFlight(const SharedParts& parts, const ExecutorOptions& options);

  void EnterTransit(const CohortStep& step, const std::vector<SpanInput>& inputs);
  void MakeVisit(const Visit& visit, OwnVisits* visits);
  void Forget(CohortId id);

  SharedParts parts_;
  CohortPool pool_;
  RowBuffers buffers_;  // shared by those that make visits of their own, each iteration anew
  std::unordered_map<CohortId, std::unique_ptr<Cohort>> cohorts_;
  // CPU attention may still be at them.
  std::vector<std::unique_ptr<Cohort>> abandoned_;
  std::unique_ptr<TransitCohort> transit_;
};

}  // namespace tandem
