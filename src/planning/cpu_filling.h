// Step 4 of NEO's scheduler (section 3.2): cpu decodes for the two sub-batches, oldest first.
//
//   GPU   | T_l0 (main)                     | T_l1 (cohort)  T_ga0              |
//   CPU   | T_ca1 (cohort)      <= T_l0     | T_ca0 (main's) <= T_l1 + T_ga0    |
//
// The inequalities say that the GPU never waits (Hiding CPU); each sub-batch is filled up to its own
// (Balancing).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/iteration_load.h"
#include "perf/layer_costs.h"
#include "perf/shared_reads.h"
#include "plan/iteration_plan.h"

namespace tandem {

// The cpu tier's decodes, oldest first.
class CpuRows {
 public:
  void Reserve(size_t num_rows) {
    rows_.reserve(num_rows);
    kv_sums_.reserve(num_rows + 1);
  }
  void Add(const RowSpan& row) {
    rows_.push_back(row);
    kv_sums_.push_back(kv_sums_.back() + KvTokensOf(row));
    any_shared_ = any_shared_ || row.beginning != 0;
  }
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  bool empty() const { return rows_.empty(); }
  // Tokens that rows [begin, end) attend.
  int64_t KvTokens(int64_t begin, int64_t end) const {
    return kv_sums_[static_cast<size_t>(end)] - kv_sums_[static_cast<size_t>(begin)];
  }
  // Tokens that they read behind others of their task, which are in *reads, and now are too.
  int64_t AddTo(SharedReads* reads, int64_t begin, int64_t end) const;
  int64_t ReadTokens(SharedReads behind, int64_t begin, int64_t end) const {
    return AddTo(&behind, begin, end);
  }
  const std::vector<RowSpan>& rows() const { return rows_; }

 private:
  std::vector<RowSpan> rows_;
  std::vector<int64_t> kv_sums_{0};  // of the first i rows
  bool any_shared_ = false;
};

// Which rows run where: runs of neighbouring rows, in order.
struct CpuFill {
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    bool in_cohort = false;
  };
  static constexpr size_t kMaxRuns = 32;
  std::array<Run, kMaxRuns> runs;
  size_t num_runs = 0;

  bool empty() const { return num_runs == 0; }
  bool has_oldest() const { return num_runs > 0 && runs[0].begin == 0; }
  // False if there are too many runs.
  bool Add(int64_t begin, int64_t end, bool in_cohort);
};

struct FillLimits {
  int64_t max_rows = 0;         // of the iteration, less what the load already has
  int64_t max_cohort_rows = 0;  // 0: one sub-batch only
  // The oldest row runs even if nothing hides it: in the cohort or the main sub-batch, where it shows less.
  bool force_oldest = false;
  int64_t max_skips = 0;  // rows that are passed over because they are too long
};

// load: the iteration without cpu decodes; gets them added. The paper's step 4: each row into batch-1 if
// T_ca1 <= T_l0 still holds, else into batch-0 if T_ca0 <= T_l1 + T_ga0 does, else it waits for the next
// iteration. Done in runs of rows with running sums instead of row by row.
CpuFill FillHiddenRows(const CpuRows& rows, const LayerCosts& costs, const FillLimits& limits,
                       IterationLoad* load);

// The oldest num_rows rows, cut into cohort and main sub-batch where the layer takes least time; for
// schedules in which nothing need hide them. max_cohort_rows 0: all in the main sub-batch.
CpuFill SplitRows(const CpuRows& rows, int64_t num_rows, const LayerCosts& costs, int64_t max_cohort_rows,
                  int64_t num_cuts, IterationLoad* load);
// Cut where cohort and main sub-batch attend about the same number of KV tokens.
CpuFill HalveRows(const CpuRows& rows, int64_t num_rows, const LayerCosts& costs, int64_t max_cohort_rows,
                  IterationLoad* load);

// Writes the rows of a fill into a plan. The cohort's token passes all layers in one iteration. id: of the
// cohort, if there is one.
void WriteRows(const CpuRows& rows, const CpuFill& fill, int64_t num_layers, CohortId id,
               IterationPlan* plan);

}  // namespace tandem
