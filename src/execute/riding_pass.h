// Asynchronous overlap (APEX section 3.3): riding cohorts join the rows of the main sub-batch for one visit
// an iteration.
//
//   compute stream   post 0, pre 1 (all rows) | ga 1 (main) ......... [+] post 1, pre 2 (all rows)
//   riders stream                             [+] scatter 0, gather 1 |                           [+] ...
//   CPU attention                                 [ready] attention 1 of riders 0, who ride at 1 in the
//                                                 next iteration
//
// [+] are waits on events. Scatter and gather read and write the riders' rows only, which lie behind those of
// the main sub-batch, so they run beside its attention. Who rides decides the device (ops/riders.h): no
// stream ever waits for the CPU. Attention of the next layer is submitted before the visit that would arm it
// is known to be made; if it is not made the task stays and serves the next attempt. Of shards each looks at
// its own attention first; a group rides where all of them can.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/sampled_token.h"
#include "device/device.h"
#include "execute/cohort.h"
#include "execute/shared_parts.h"
#include "model/row_batch.h"
#include "ops/ops.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Engine thread only.
class RidingPass {
 public:
  // max_rows: at one boundary. max_cohorts: of an iteration. Errors: kResourceExhausted.
  static Result<std::unique_ptr<RidingPass>> Create(const SharedParts& parts, int64_t max_rows,
                                                    int64_t max_cohorts);

  // AttentionTask::wanted_at refers to it. Lives as long as this.
  const std::atomic<int64_t>* progress() const { return plan_->progress(); }

  // A new iteration, what ran before has ended. Makes the plan known to the compute stream. riders: each with
  // an upload of its inputs enqueued already.
  void Begin(std::vector<Rider> riders);
  // Of the layers that riders at this boundary may get to, and at boundaries before it: boundary by boundary,
  // or once for the last. After the visits are enqueued, so that the device need not wait for this.
  void SubmitAttention(int64_t boundary);
  // The riders in the order of their rows at each boundary; empty: nobody rides in this iteration.
  std::span<const Rider> riders() const { return riders_; }
  int64_t RowsAt(int64_t boundary) const { return num_rows_[static_cast<size_t>(boundary + 1)]; }
  // Of all boundaries the most, and the mean, rounded up.
  int64_t MostRows() const;
  int64_t MeanRows() const;

  // Rows that a boundary and the next one get: RowsAt in general, always the same in graphs.
  struct Rows {
    int64_t row_begin = 0;  // behind those of the main sub-batch
    int64_t here = 0;
    int64_t next = 0;
    int32_t* positions = nullptr;  // device memory, of all rows of the batch
  };
  // The compute stream has passed a boundary with batch: takes the riders' rows away and brings those of the
  // next boundary.
  void Exchange(int64_t boundary, const Rows& rows, const RowBatch& batch);
  // What is enqueued on the compute stream from now on comes after all exchanges so far.
  void Await();
  // The iteration is enqueued: brings the decisions to the host.
  void End();
  // Once the compute stream has run: who has made its visit goes on to its next layer. outcomes: of the
  // plan's cohorts. results: of the rows of the riders at the last boundary, in order. No riders any more.
  void Collect(std::span<SampledToken> results, std::vector<CohortOutcome>* outcomes);
  // No riders any more.
  void Clear();

 private:
  explicit RidingPass(const SharedParts& parts);

  Stream& stream() const { return *parts_.lanes->riders().stream; }
  RiderGroup GroupOf(const Cohort& cohort) const;

  SharedParts parts_;
  int64_t num_layers_ = 0;
  std::unique_ptr<Event> passed_;
  std::unique_ptr<Event> exchanged_;
  std::unique_ptr<RiderPlan> plan_;
  std::vector<Rider> riders_;      // sorted by boundary
  std::vector<int64_t> num_rows_;  // of boundaries -1, 0, ...
  size_t num_submitted_ = 0;       // riders, from the first on
  int64_t num_iterations_ = 0;     // with riders, so far: passes are counted over them
};

}  // namespace tandem
