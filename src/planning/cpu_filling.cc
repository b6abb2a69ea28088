#include "planning/cpu_filling.h"

#include <algorithm>
#include <limits>

#include "base/largest_that.h"
#include "perf/time_model.h"

namespace tandem {
namespace {

// reads: of the sub-batch's rows so far.
void AddRun(const CpuRows& rows, int64_t begin, int64_t end, bool in_cohort, SharedReads* reads,
            IterationLoad* load) {
  const int64_t kv_tokens = rows.AddTo(reads, begin, end);
  (in_cohort ? load->cohort_rows : load->main_cpu_rows) += end - begin;
  (in_cohort ? load->cohort_kv_tokens : load->main_cpu_kv_tokens) += kv_tokens;
  load->num_sampled += end - begin;
}

// A sub-batch while it is filled: takes rows from `next` on as far as it may.
class Filling {
 public:
  Filling(const CpuRows& rows, const LayerCosts& costs, const FillLimits& limits, IterationLoad* load)
      : rows_(rows),
        time_(costs),
        limits_(limits),
        load_(load),
        cohort_reads_(costs),
        main_reads_(costs),
        rows_left_(limits.max_rows) {}

  CpuFill Fill() {
    if (limits_.force_oldest) ForceOldest();
    int64_t skips = 0;
    while (next_ < rows_.size() && rows_left_ > 0 && !full_) {
      int64_t taken = ExtendCohort();
      taken += ExtendMain();
      if (taken > 0) continue;
      if (++skips > limits_.max_skips) break;
      ++next_;
    }
    return fill_;
  }

 private:
  void Take(int64_t num_rows, bool in_cohort) {
    if (num_rows == 0) return;
    if (!fill_.Add(next_, next_ + num_rows, in_cohort)) {
      full_ = true;
      return;
    }
    AddRun(rows_, next_, next_ + num_rows, in_cohort, in_cohort ? &cohort_reads_ : &main_reads_, load_);
    next_ += num_rows;
    rows_left_ -= num_rows;
  }

  // T_ca1 <= T_l0
  int64_t ExtendCohort() {
    const int64_t most =
        std::min({rows_.size() - next_, rows_left_, limits_.max_cohort_rows - load_->cohort_rows});
    const double window_us = time_.CohortWindowUs(*load_);
    const int64_t taken = LargestThat(most, [&](int64_t n) {
      return time_.CpuUs(load_->cohort_rows + n,
                         load_->cohort_kv_tokens + rows_.ReadTokens(cohort_reads_, next_, next_ + n)) <=
             window_us;
    });
    Take(taken, true);
    return taken;
  }

  // T_ca0 <= T_l1 + T_ga0
  int64_t ExtendMain() {
    const int64_t most = std::min(rows_.size() - next_, rows_left_);
    if (most <= 0) return 0;
    const double window_us = time_.MainWindowUs(*load_);
    const int64_t taken = LargestThat(most, [&](int64_t n) {
      return time_.CpuUs(load_->main_cpu_rows + n,
                         load_->main_cpu_kv_tokens + rows_.ReadTokens(main_reads_, next_, next_ + n)) <=
             window_us;
    });
    Take(taken, false);
    return taken;
  }

  void ForceOldest() {
    if (rows_.empty() || rows_left_ <= 0) return;
    IterationLoad with_main = *load_;
    SharedReads reads = main_reads_;
    AddRun(rows_, 0, 1, false, &reads, &with_main);
    bool in_cohort = false;
    if (load_->cohort_rows < limits_.max_cohort_rows) {
      IterationLoad with_cohort = *load_;
      reads = cohort_reads_;
      AddRun(rows_, 0, 1, true, &reads, &with_cohort);
      in_cohort = time_.TimesOf(with_cohort).LayerUs() < time_.TimesOf(with_main).LayerUs();
    }
    Take(1, in_cohort);
  }

  const CpuRows& rows_;
  TimeModel time_;
  const FillLimits& limits_;
  IterationLoad* load_;
  SharedReads cohort_reads_;
  SharedReads main_reads_;
  CpuFill fill_;
  int64_t next_ = 0;
  int64_t rows_left_;
  bool full_ = false;
};

// The first num_cohort_rows of num_rows in the cohort.
CpuFill CutRows(const CpuRows& rows, int64_t num_rows, const LayerCosts& costs, int64_t num_cohort_rows,
                IterationLoad* load) {
  CpuFill fill;
  SharedReads cohort_reads(costs);
  SharedReads main_reads(costs);
  if (num_cohort_rows > 0) {
    fill.Add(0, num_cohort_rows, true);
    AddRun(rows, 0, num_cohort_rows, true, &cohort_reads, load);
  }
  if (num_cohort_rows < num_rows) {
    fill.Add(num_cohort_rows, num_rows, false);
    AddRun(rows, num_cohort_rows, num_rows, false, &main_reads, load);
  }
  return fill;
}

}  // namespace

int64_t CpuRows::AddTo(SharedReads* reads, int64_t begin, int64_t end) const {
  if (!any_shared_) return KvTokens(begin, end);
  int64_t tokens = 0;
  for (int64_t i = begin; i < end; ++i) tokens += reads->Add(rows_[static_cast<size_t>(i)]);
  return tokens;
}

bool CpuFill::Add(int64_t begin, int64_t end, bool in_cohort) {
  if (num_runs == kMaxRuns) return false;
  runs[num_runs++] = {begin, end, in_cohort};
  return true;
}

CpuFill FillHiddenRows(const CpuRows& rows, const LayerCosts& costs, const FillLimits& limits,
                       IterationLoad* load) {
  return Filling(rows, costs, limits, load).Fill();
}

CpuFill SplitRows(const CpuRows& rows, int64_t num_rows, const LayerCosts& costs, int64_t max_cohort_rows,
                  int64_t num_cuts, IterationLoad* load) {
  // The main sub-batch is never empty.
  const int64_t most =
      std::min(load->main_rows() > 0 ? num_rows : std::max<int64_t>(0, num_rows - 1), max_cohort_rows);
  int64_t best = 0;
  double best_us = std::numeric_limits<double>::infinity();
  // From the middle outwards: of equal cuts the one that leaves most slack on both sides.
  for (int64_t i = 0; i <= num_cuts; ++i) {
    const int64_t share = num_cuts / 2 + (i % 2 == 0 ? i / 2 : -(i + 1) / 2);
    const int64_t cut = std::min(most, num_rows * share / num_cuts);
    IterationLoad trial = *load;
    CutRows(rows, num_rows, costs, cut, &trial);
    const double us = TimeModel(costs).TimesOf(trial).LayerUs();
    if (us >= best_us) continue;
    best = cut;
    best_us = us;
  }
  return CutRows(rows, num_rows, costs, best, load);
}

CpuFill HalveRows(const CpuRows& rows, int64_t num_rows, const LayerCosts& costs, int64_t max_cohort_rows,
                  IterationLoad* load) {
  const int64_t half = LargestThat(std::min(num_rows, max_cohort_rows), [&](int64_t n) {
    return 2 * rows.KvTokens(0, n) <= rows.KvTokens(0, num_rows);
  });
  return CutRows(rows, num_rows, costs, half, load);
}

void WriteRows(const CpuRows& rows, const CpuFill& fill, int64_t num_layers, CohortId id,
               IterationPlan* plan) {
  CohortStep cohort{.cohort = id};
  for (size_t i = 0; i < fill.num_runs; ++i) {
    const CpuFill::Run& run = fill.runs[i];
    std::vector<RowSpan>& to = run.in_cohort ? cohort.rows : plan->main.spans;
    to.insert(to.end(), rows.rows().begin() + run.begin, rows.rows().begin() + run.end);
  }
  if (cohort.rows.empty()) return;
  cohort.visits.reserve(static_cast<size_t>(num_layers) + 1);
  for (int64_t layer = kEntry; layer < num_layers; ++layer) cohort.visits.push_back({layer, layer});
  plan->cohorts.push_back(std::move(cohort));
}

}  // namespace tandem
