// One plan of a strategy that uses the cpu tier: NEO's scheduler (section 3.2, appendix A) in its six steps.
// The strategies differ in which decodes may stay in the gpu tier and in how cpu decodes are cut into
// sub-batches.
//
//   1  nothing is planned; the operating point says what the work tends to (operating_point.h)
//   2  room for decodes: swaps, preemption (decode_room.h)
//   3  prompts, by tier (prefill_queue.h)
//   4  cpu decodes behind the GPU's work (cpu_filling.h)
//   5  fewer prefill chunks where fewer hide the same rows
//   6  of all schedules the one with the most work done a microsecond
//
// Work, not requests or raw tokens, is what step 6 counts: a prefilled and a decoded token are worth what
// they stand for at the operating point. Prompt tokens are worth more than that while the decodes use them up
// faster than they come, and less beyond: they are dealt out over iterations, so that each hides its share of
// CPU attention.
//
// Asynchronous overlap (APEX section 3.3) fits in: a row that rides does one of the L + 1 visits of a token,
// so that is the share of a token's work that step 6 counts for it. Cohorts amid a token ride in every
// schedule, unless they make all visits left of it at once, furthest first, behind the GPU's work.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kv/capacity_view.h"
#include "perf/iteration_load.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "schedule/cpu_filling.h"
#include "schedule/operating_point.h"
#include "schedule/prefill_queue.h"
#include "schedule/riders.h"
#include "schedule/schedule_state.h"
#include "schedule/tier_books.h"

namespace tandem {

// Who decodes in the cpu tier, and in which sub-batches.
enum class CpuUse {
  kHidden,   // asymmetric: what hides behind the GPU's work; the gpu tier has its own decodes
  kAll,      // full-offload: all, cut where the layer takes least time
  kHalves,   // symmetric: all, in two equal halves
  kUnified,  // simple-offload: all, in one sub-batch
  kRiding,   // async: all ride that may take so long over a token, the others as kHidden
  kBest,     // auto: kHidden or kRiding, whichever has the better throughput in the steady state
};

// Whether nobody decodes in the gpu tier while the cpu tier can be used.
constexpr bool OffloadsAll(CpuUse use) {
  return use == CpuUse::kAll || use == CpuUse::kHalves || use == CpuUse::kUnified;
}

class NeoPlanner {
 public:
  // All outlive the planner. name: of the strategy, static storage.
  NeoPlanner(std::string_view name, CpuUse cpu_use, const ScheduleState& state, const CapacityView& capacity,
             const LayerCosts& costs);
  // The cpu tier takes in as many requests as riding wants, whatever this plan does with them.
  void AdmitForRiding() { admits_for_riding_ = true; }
  // Once.
  IterationPlan Plan();

 private:
  // A schedule that step 6 may choose.
  struct Candidate {
    int64_t prefill_tokens = 0;
    CpuFill fill;
    bool alone = false;  // of ConsiderRowsAlone: rows that could ride run as well
    // Of the cohorts amid a token, those that make the visits left of it in one go: [own_begin, own_end).
    size_t own_begin = 0;
    size_t own_end = 0;
    IterationLoad load;  // without moves
    double us = 0;       // 0: an empty schedule
    double work = 0;     // done in it, in microseconds at the operating point
    double worth = 0;    // the same, with prefill as it is wanted
  };

  bool offloads_all() const { return OffloadsAll(cpu_use_) && state_.cpu_tier_usable; }
  bool within_limit(double us) const { return max_iteration_us_ <= 0 || us <= max_iteration_us_; }
  // A token of a row that rides takes this long, and that is too long for sequences that are not flexible.
  bool riding_is_slow() const {
    return state_.limits.max_tpot_us > 0 &&
           static_cast<double>(costs_.num_layers() + 1) * riding_.iteration_us > state_.limits.max_tpot_us;
  }
  bool may_ride(const RunningSequence& sequence) const { return sequence.flexible || !riding_is_slow(); }
  bool has_main() const { return !gpu_rows_.empty() || prefills_.num_tokens() > 0; }

  // The target may be passed while prompts are dealt out evenly: those that are there then are worth less.
  int64_t max_cpu_sequences() const;

  void FindLimit();
  void FindTarget();  // 1
  SteadyWork WorkOfTheState() const;
  void ChooseOverlap(const SteadyWork& work);
  // Rows of the cpu tier that there can be, of requests that are here: the gpu tier is full first.
  double RowsBeyondGpuTier(const SteadyWork& work) const;
  void ValueWhatIsThere(const SteadyWork& work);
  void MakeRoomForDecodes();  // 2
  void SwapOutAll();
  bool CpuTierIsOverloaded() const;
  bool OverloadCanLeave() const;
  void CollectDecodes();
  void CollectRiders();
  void AdmitPrefills();  // 3
  void WeighWork();
  double GpuRampIterations() const;
  std::vector<int64_t> PrefillBudgets() const;
  void ConsiderHiddenRows(int64_t budget);  // 4
  void ConsiderAllRows(int64_t budget);
  void ConsiderRowsAlone();
  // Of the gpu tier's decodes and so much prefill; without a price.
  Candidate OfBudget(int64_t budget) const;
  Candidate WithoutCpuRows(int64_t budget) const;
  Candidate WithHiddenRows(int64_t budget, const FillLimits& limits) const;
  Candidate WithAllRows(int64_t budget, int64_t num_rows) const;
  int64_t RowsBesidePrefill(const Candidate& candidate) const;
  void FillTiles(Candidate* candidate) const;
  void AddOwnVisits(int64_t max_rows, Candidate* candidate) const;
  IterationLoad MeanLoadOf(const Candidate& candidate) const;
  double TokensOf(const Candidate& candidate) const;
  int64_t ReducePrefills(const Candidate& candidate) const;  // 5
  void Price(Candidate* candidate) const;                    // 6
  void Consider(const Candidate& candidate);
  void ConsiderBestOfBudget();
  bool IsBetter(const Candidate& a, const Candidate& b, double Candidate::*merit) const;
  IterationPlan Write() const;
  std::string_view NameOf(bool waits_for_cpu, bool uses_cpu_tier) const;

  std::string_view name_;
  CpuUse cpu_use_;
  const ScheduleState& state_;
  const LayerCosts& costs_;
  TierBooks books_;
  double max_iteration_us_ = 0;  // 0: no limit
  bool admits_for_riding_ = false;
  bool rides_ = false;           // kRiding, or chosen by kBest
  bool targets_riding_ = false;  // target_ is riding_
  OperatingPoint target_;        // of the cpu tier
  OperatingPoint riding_;        // with asynchronous overlap, where that may be used
  std::vector<RowSpan> gpu_rows_;
  CpuRows cpu_rows_;       // that do not ride
  CpuRows free_cpu_rows_;  // all that are not amid a token
  Riders riders_;
  IterationLoad gpu_load_;  // of gpu_rows_
  int64_t rows_left_ = 0;   // beside them
  PrefillQueue prefills_;
  double prefilled_token_us_ = 0;  // what a token is worth now
  double decoded_token_us_ = 0;
  double wanted_prefill_tokens_ = 0;  // that the decodes use up, and that bring the tiers up to their targets
  Candidate best_;                    // of all budgets, by worth
  Candidate best_of_budget_;          // by work
};

}  // namespace tandem
