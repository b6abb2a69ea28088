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
    const auto num_rows = static_cast<int64_t>(step.rows.size());
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

}  // namespace

int64_t KvTokensOf(const std::vector<DecodeRow>& rows) {
  int64_t kv_tokens = 0;
  for (const DecodeRow& row : rows) kv_tokens += row.position + 1;
  return kv_tokens;
}

RiderWork RiderWorkOf(const CohortStep& step, const LayerCosts& costs) {
  if (step.cursor >= costs.num_layers() - 1) return {};
  const auto num_rows = static_cast<int64_t>(step.rows.size());
  const int64_t kv_tokens = KvTokensOf(step.rows);
  return {.kv_tokens = kv_tokens,
          .attention_us = costs.CpuAttentionUs(num_rows, kv_tokens),
          .exchange_us = costs.ExchangeUs(num_rows)};
}

IterationLoad LoadOf(const IterationPlan& plan, const LayerCosts& costs) {
  IterationLoad load;
  for (const PrefillChunk& chunk : plan.main.prefills) {
    load.prefill_tokens += chunk.num_tokens;
    load.prefill_attention_us += costs.PrefillAttentionUs(chunk.num_tokens, chunk.start + chunk.num_tokens);
    if (chunk.samples) ++load.num_sampled;
    if (chunk.tier == Tier::kCpu) load.swapped_tokens += chunk.num_tokens;
  }
  const auto add = [](const std::vector<DecodeRow>& rows, int64_t* num_rows, int64_t* kv_tokens) {
    *num_rows += static_cast<int64_t>(rows.size());
    *kv_tokens += KvTokensOf(rows);
  };
  add(plan.main.gpu_decodes, &load.gpu_decode_rows, &load.gpu_kv_tokens);
  add(plan.main.cpu_decodes, &load.main_cpu_rows, &load.main_cpu_kv_tokens);
  load.num_sampled += load.gpu_decode_rows + load.main_cpu_rows;
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
