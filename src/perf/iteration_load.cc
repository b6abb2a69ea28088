#include "perf/iteration_load.h"

#include <algorithm>
#include <map>

namespace tandem {
namespace {

// `share` of num_shares, rounded up.
int64_t ShareOf(int64_t count, int64_t share, int64_t num_shares) {
  return (count * share + num_shares - 1) / num_shares;
}

void AddCohorts(const IterationPlan& plan, const LayerCosts& costs, IterationLoad* load) {
  const int64_t num_layers = costs.num_layers();
  std::map<int64_t, int64_t> riders;  // by boundary
  for (const CohortStep& step : plan.cohorts) {
    if (step.visits.empty()) continue;
    const int64_t num_rows = NumRowsOf(step.rows);
    if (step.visits.back().layer == num_layers - 1) load->num_sampled += num_rows;
    if (!step.rides) {
      // Parts of a layer are means over all of them.
      const auto num_visits = static_cast<int64_t>(step.visits.size());
      load->cohort_rows += ShareOf(num_rows, num_visits, num_layers + 1);
      load->cohort_kv_tokens += ShareOf(KvTokensOf(step.rows), num_visits, num_layers + 1);
      continue;
    }
    const RiderWork work = RiderWorkOf(step, costs);
    riders[step.cursor] += num_rows;
    load->rider_rows += num_rows;
    load->rider_kv_tokens += work.kv_tokens;
    load->rider_cpu_us += work.attention_us + work.exchange_us;
    load->rider_exchange_us += work.exchange_us;
  }
  for (const auto& [boundary, num_rows] : riders)
    load->rider_linear_us += costs.LinearUs(load->main_rows() + num_rows) - costs.LinearUs(load->main_rows());
}

void AddSpan(const RowSpan& span, const LayerCosts& costs, IterationLoad* load) {
  load->num_sampled += span.num_sampled();
  if (span.attention == Tier::kCpu) {
    load->main_cpu_rows += span.num_tokens;
    load->main_cpu_kv_tokens += KvTokensOf(span);
  } else if (span.is_decode()) {
    ++load->gpu_decode_rows;
    load->gpu_kv_tokens += KvTokensOf(span);
  } else {
    load->prefill_tokens += span.num_tokens;
    load->prefill_attention_us += costs.PrefillAttentionUs(span.num_tokens, span.end());
    if (span.in_transit()) load->swapped_tokens += span.num_tokens;
  }
}

}  // namespace

RiderWork RiderWorkOf(const CohortStep& step, const LayerCosts& costs) {
  if (step.cursor >= costs.num_layers() - 1) return {};
  const int64_t num_rows = NumRowsOf(step.rows);
  const int64_t kv_tokens = KvTokensOf(step.rows);
  return {.kv_tokens = kv_tokens,
          .attention_us = costs.CpuAttentionUs(num_rows, kv_tokens),
          .exchange_us = costs.ExchangeUs(num_rows)};
}

IterationLoad LoadOf(const IterationPlan& plan, const LayerCosts& costs) {
  IterationLoad load;
  for (const RowSpan& span : plan.main.spans) AddSpan(span, costs, &load);
  AddCohorts(plan, costs, &load);
  return load;
}

double LayerTimes::LayerUs() const {
  return std::max(linear_main_us, cpu_cohort_us) + std::max(linear_cohort_us + gpu_attention_us, cpu_main_us);
}

LayerTimes TimesOf(const IterationLoad& load, const LayerCosts& costs) {
  const auto cpu_us = [&](int64_t rows, int64_t kv_tokens) {
    return rows == 0 ? 0.0 : costs.CpuAttentionUs(rows, kv_tokens) + costs.ExchangeUs(rows);
  };
  return {.linear_main_us = costs.LinearUs(load.main_rows()),
          .linear_cohort_us = costs.LinearUs(load.cohort_rows),
          .gpu_attention_us = load.prefill_attention_us +
                              costs.GpuDecodeAttentionUs(load.gpu_decode_rows, load.gpu_kv_tokens),
          .cpu_main_us = cpu_us(load.main_cpu_rows, load.main_cpu_kv_tokens),
          .cpu_cohort_us = cpu_us(load.cohort_rows, load.cohort_kv_tokens)};
}

double IterationUs(const IterationLoad& load, const LayerCosts& costs) {
  return static_cast<double>(costs.num_layers()) * TimesOf(load, costs).LayerUs() + load.rider_linear_us +
         costs.OutsideLayersUs(load.num_sampled);
}

}  // namespace tandem
