// How long rows and plans take, from what the parts of a layer cost. Costs are added up here and in
// steady_times.h, nowhere else.
//
// An iteration with two sub-batches (NEO section 3.2):
//
//   T = L * (max(T_l0, T_ca1) + max(T_l1 + T_ga0, T_ca0) + T_h) + what riders add + what is outside the
//   layers
//
//   GPU   | T_l0 (main)        | T_l1 (cohort)  T_ga0    |
//   CPU   | T_ca1 (cohort)     | T_ca0 (main's cpu rows) |
//
// T_h, of handing rows over, is there where CPU attention is waited for.
//
// Riders (APEX section 3.3) come on top of the main sub-batch's m rows where they visit, and nobody waits for
// their attention: n of them at a boundary add T_l(m + n) - T_l(m).
//
// The layers that a cohort in transit passes come on top. Copies between the tiers run beside all of it: an
// iteration is no shorter than L * T_swap of its tokens and those of the layers in transit together.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/iteration_load.h"
#include "perf/layer_costs.h"
#include "perf/shared_reads.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Microseconds. As thread-safe as the costs are, and as cheap to make and to copy as a pointer.
class TimeModel {
 public:
  // costs: outlive the model.
  explicit TimeModel(const LayerCosts& costs) : costs_(&costs) {}

  // Rows, one layer.

  // T_l, between whole rows on a straight line.
  double LinearUs(double num_rows) const;
  // T_ca of decodes, exchange included.
  double CpuUs(int64_t num_rows, int64_t kv_tokens) const {
    return num_rows == 0 ? 0.0 : costs_->CpuAttentionUs(num_rows, kv_tokens) + costs_->ExchangeUs(num_rows);
  }
  // T_ga of a whole prompt, in chunks of at most max_chunk_tokens (0: in one).
  double PromptAttentionUs(int64_t prompt_len, int64_t max_chunk_tokens, int64_t num_cached = 0) const;
  // The same in one chunk, for each of its tokens.
  double PromptTokenAttentionUs(double mean_prompt) const;
  // What another row costs where arithmetic bounds the linear operations.
  double LinearSlopeUs() const;
  // N_C of APEX section 3.2: KV tokens a microsecond of CPU attention, exchange included, over the most rows
  // of context_len tokens that window_us has time for; one row at least.
  double CpuTokensPerUs(double context_len, double window_us) const;

  // Of spans in transit.
  TransitTimes TransitLayerOf(const std::vector<RowSpan>& rows) const;

  // Plans.

  IterationLoad LoadOf(const IterationPlan& plan) const;
  RiderWork RiderWorkOf(const CohortStep& step) const;
  // Behind a visit from `cursor` on.
  RiderWork RiderWorkOf(int64_t cursor, int64_t num_rows, int64_t kv_tokens) const;
  LayerTimes TimesOf(const IterationLoad& load) const;
  // T.
  double IterationUs(const IterationLoad& load) const;
  // T, no shorter than the copies of load.swapped_tokens and of layers in transit.
  double IterationWithCopiesUs(const IterationLoad& load) const;
  // The same in parts.
  TimeParts PartsOf(const IterationLoad& load) const;
  // Time of the GPU in a layer behind which CPU attention hides: that of cohorts behind T_l0, that of the
  // main sub-batch behind T_l1 + T_ga0.
  double CohortWindowUs(const IterationLoad& load) const;
  double MainWindowUs(const IterationLoad& load) const;
  // L * (T_ca0 + T_ca1): CPU attention that the iteration waits for, exchange included.
  double WaitedCpuUs(const IterationLoad& load) const;
  // What the workers of CPU attention do in it, riders included, exchanges not.
  double CpuWorkUs(const IterationLoad& load) const;
  // Share of T that grows with what the GPU takes: of each half of a layer if the GPU is the longer part.
  double GpuShare(const IterationLoad& load) const;

  // What prefill_tokens in an iteration take more than other_tokens beside the same gpu_rows rows, of prompts
  // of mean_prompt tokens; means of many iterations, so not whole:
  //   L * (T_l(p + g) - T_l(o + g) + (p - o) * attention of a prompt's token)
  double PrefillDifferenceUs(double gpu_rows, double prefill_tokens, double other_tokens,
                             double mean_prompt) const;

 private:
  double num_layers() const { return static_cast<double>(costs_->num_layers()); }
  double CopiesUs(const IterationLoad& load) const;
  double HandOverUs(const IterationLoad& load) const;
  // main_reads: of its cpu rows so far.
  void AddSpan(const RowSpan& span, SharedReads* main_reads, IterationLoad* load) const;
  void AddCohorts(const IterationPlan& plan, IterationLoad* load) const;
  void AddTransit(const CohortStep& step, IterationLoad* load) const;

  const LayerCosts* costs_;
};

// Adds riders to a load that has its whole main sub-batch.
class RiderSum {
 public:
  // Both outlive it.
  RiderSum(const LayerCosts& costs, IterationLoad* load);
  // Linear operations of all num_rows rows that ride at one boundary.
  void AddBoundary(int64_t num_rows);
  // A cohort's visit from `cursor` on: CPU attention behind it (RiderWorkOf), or its samples if that was its
  // last.
  void AddVisit(int64_t cursor, int64_t num_rows, const RiderWork& work);

 private:
  const LayerCosts& costs_;
  IterationLoad* load_;
  double main_us_;
};

}  // namespace tandem
