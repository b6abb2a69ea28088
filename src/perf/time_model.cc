#include "perf/time_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "perf/fractional_rows.h"

namespace tandem {
namespace {

// `share` of num_shares, rounded up.
int64_t ShareOf(int64_t count, int64_t share, int64_t num_shares) {
  return (count * share + num_shares - 1) / num_shares;
}

}  // namespace

double TimeModel::LinearUs(double num_rows) const {
  return Between(num_rows, [this](int64_t rows) { return costs_->LinearUs(rows); });
}

double TimeModel::PromptAttentionUs(int64_t prompt_len, int64_t max_chunk_tokens, int64_t num_cached) const {
  const int64_t chunk_len = max_chunk_tokens > 0 ? max_chunk_tokens : prompt_len;
  double sum_us = 0;
  for (int64_t start = num_cached; start < prompt_len; start += chunk_len) {
    const int64_t end = std::min(start + chunk_len, prompt_len);
    sum_us += costs_->PrefillAttentionUs(end - start, end);
  }
  return sum_us;
}

double TimeModel::PromptTokenAttentionUs(double mean_prompt) const {
  const int64_t prompt_len = std::llround(mean_prompt);
  return costs_->PrefillAttentionUs(prompt_len, prompt_len) / mean_prompt;
}

double TimeModel::LinearSlopeUs() const {
  constexpr int64_t kFew = 1024;
  constexpr int64_t kMany = 2048;
  return (costs_->LinearUs(kMany) - costs_->LinearUs(kFew)) / (kMany - kFew);
}

double TimeModel::CpuTokensPerUs(double context_len, double window_us) const {
  // Far more than CPU attention gets through in a layer.
  constexpr int64_t kMaxRows = int64_t{1} << 20;
  if (context_len <= 0) return 0;
  const auto tokens = [&](int64_t rows) { return static_cast<double>(rows) * context_len; };
  const auto time_us = [&](int64_t rows) { return CpuUs(rows, static_cast<int64_t>(tokens(rows))); };
  int64_t fits = 1;
  int64_t too_many = 2;
  while (too_many < kMaxRows && time_us(too_many) <= window_us) {
    fits = too_many;
    too_many *= 2;
  }
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (time_us(middle) <= window_us ? fits : too_many) = middle;
  }
  const double us = time_us(fits);
  return us > 0 ? tokens(fits) / us : 0;
}

void TimeModel::AddSpan(const RowSpan& span, SharedReads* main_reads, IterationLoad* load) const {
  load->num_sampled += span.num_sampled();
  if (span.attention == Tier::kCpu) {
    load->main_cpu_rows += span.num_tokens;
    load->main_cpu_kv_tokens += main_reads->Add(span);
  } else if (span.is_decode()) {
    ++load->gpu_decode_rows;
    load->gpu_kv_tokens += KvTokensOf(span);
  } else {
    load->prefill_tokens += span.num_tokens;
    load->prefill_attention_us += costs_->PrefillAttentionUs(span.num_tokens, span.end());
    if (span.in_transit()) load->swapped_tokens += span.end();
  }
}

void TimeModel::AddCohorts(const IterationPlan& plan, IterationLoad* load) const {
  const int64_t num_layers = costs_->num_layers();
  RiderSum riders(*costs_, load);
  std::map<int64_t, int64_t> riders_at;  // by boundary
  for (const CohortStep& step : plan.cohorts) {
    if (step.visits.empty()) continue;
    if (step.in_transit()) {
      AddTransit(step, load);
      continue;
    }
    const int64_t num_rows = NumRowsOf(step.rows);
    const int64_t kv_tokens = ReadTokensOf(step.rows, *costs_);
    if (step.rides) {
      riders_at[step.cursor] += num_rows;
      riders.AddVisit(step.cursor, num_rows, RiderWorkOf(step.cursor, num_rows, kv_tokens));
      continue;
    }
    if (step.visits.back().layer == num_layers - 1) load->num_sampled += num_rows;
    // Parts of a layer are means over all of them.
    const auto num_visits = static_cast<int64_t>(step.visits.size());
    load->cohort_rows += ShareOf(num_rows, num_visits, num_layers + 1);
    load->cohort_kv_tokens += ShareOf(kv_tokens, num_visits, num_layers + 1);
  }
  for (const auto& [boundary, num_rows] : riders_at) riders.AddBoundary(num_rows);
}

TransitTimes TimeModel::TransitLayerOf(const std::vector<RowSpan>& rows) const {
  TransitTimes times{.compute_us = costs_->LinearUs(NumRowsOf(rows))};
  for (const RowSpan& span : rows) {
    times.compute_us += costs_->PrefillAttentionUs(span.num_tokens, span.end());
    times.copies_us += costs_->SwapUs(span.end());
  }
  return times;
}

void TimeModel::AddTransit(const CohortStep& step, IterationLoad* load) const {
  const TransitTimes layer = TransitLayerOf(step.rows);
  const int64_t first_layer = std::max<int64_t>(0, step.visits.front().layer);
  const auto num_layers = static_cast<double>(step.visits.back().layer + 1 - first_layer);
  load->transit_us += num_layers * layer.compute_us;
  load->transit_copies_us += num_layers * layer.copies_us;
  if (step.visits.back().layer < costs_->num_layers() - 1) return;
  for (const RowSpan& span : step.rows) load->num_sampled += span.num_sampled();
}

IterationLoad TimeModel::LoadOf(const IterationPlan& plan) const {
  IterationLoad load;
  SharedReads main_reads(*costs_);
  for (const RowSpan& span : plan.main.spans) AddSpan(span, &main_reads, &load);
  AddCohorts(plan, &load);
  return load;
}

RiderWork TimeModel::RiderWorkOf(const CohortStep& step) const {
  return RiderWorkOf(step.cursor, NumRowsOf(step.rows), ReadTokensOf(step.rows, *costs_));
}

RiderWork TimeModel::RiderWorkOf(int64_t cursor, int64_t num_rows, int64_t kv_tokens) const {
  if (cursor >= costs_->num_layers() - 1) return {};
  return {.kv_tokens = kv_tokens,
          .attention_us = costs_->CpuAttentionUs(num_rows, kv_tokens),
          .exchange_us = costs_->ExchangeUs(num_rows)};
}

LayerTimes TimeModel::TimesOf(const IterationLoad& load) const {
  return {.linear_main_us = costs_->LinearUs(load.main_rows()),
          .linear_cohort_us = costs_->LinearUs(load.cohort_rows),
          .gpu_attention_us = load.prefill_attention_us +
                              costs_->GpuDecodeAttentionUs(load.gpu_decode_rows, load.gpu_kv_tokens),
          .cpu_main_us = CpuUs(load.main_cpu_rows, load.main_cpu_kv_tokens),
          .cpu_cohort_us = CpuUs(load.cohort_rows, load.cohort_kv_tokens)};
}

double TimeModel::IterationUs(const IterationLoad& load) const {
  return num_layers() * (TimesOf(load).LayerUs() + HandOverUs(load)) + load.rider_linear_us +
         load.transit_us + costs_->OutsideLayersUs(load.num_sampled);
}

double TimeModel::HandOverUs(const IterationLoad& load) const {
  return load.main_cpu_rows > 0 || load.cohort_rows > 0 ? costs_->HandOverUs() : 0;
}

double TimeModel::IterationWithCopiesUs(const IterationLoad& load) const {
  return std::max(IterationUs(load), CopiesUs(load));
}

double TimeModel::CopiesUs(const IterationLoad& load) const {
  return num_layers() * costs_->SwapUs(load.swapped_tokens) + load.transit_copies_us;
}

TimeParts TimeModel::PartsOf(const IterationLoad& load) const {
  const LayerTimes times = TimesOf(load);
  const double linear_us = times.linear_main_us + times.linear_cohort_us;
  const double read_us = costs_->LinearUs(1);
  const double weights_us =
      std::min(times.linear_main_us, read_us) + std::min(times.linear_cohort_us, read_us);
  return {
      .weights_us = num_layers() * weights_us,
      .products_us = num_layers() * (linear_us - weights_us) + load.rider_linear_us + load.transit_us,
      .gpu_attention_us = num_layers() * times.gpu_attention_us,
      .cpu_wait_us = num_layers() * (times.LayerUs() - linear_us - times.gpu_attention_us + HandOverUs(load)),
      .copies_us = std::max(0.0, CopiesUs(load) - IterationUs(load)),
      .outside_us = costs_->OutsideLayersUs(load.num_sampled)};
}

double TimeModel::CohortWindowUs(const IterationLoad& load) const {
  return costs_->LinearUs(load.main_rows());
}

double TimeModel::MainWindowUs(const IterationLoad& load) const {
  return costs_->LinearUs(load.cohort_rows) + load.prefill_attention_us +
         costs_->GpuDecodeAttentionUs(load.gpu_decode_rows, load.gpu_kv_tokens);
}

double TimeModel::WaitedCpuUs(const IterationLoad& load) const {
  return num_layers() * (CpuUs(load.main_cpu_rows, load.main_cpu_kv_tokens) +
                         CpuUs(load.cohort_rows, load.cohort_kv_tokens));
}

double TimeModel::CpuWorkUs(const IterationLoad& load) const {
  return num_layers() * (costs_->CpuAttentionUs(load.main_cpu_rows, load.main_cpu_kv_tokens) +
                         costs_->CpuAttentionUs(load.cohort_rows, load.cohort_kv_tokens)) +
         load.rider_cpu_us - load.rider_exchange_us;
}

double TimeModel::GpuShare(const IterationLoad& load) const {
  const LayerTimes times = TimesOf(load);
  const double gpu_us = (times.linear_main_us >= times.cpu_cohort_us ? times.linear_main_us : 0.0) +
                        (times.linear_cohort_us + times.gpu_attention_us >= times.cpu_main_us
                             ? times.linear_cohort_us + times.gpu_attention_us
                             : 0.0);
  // Riders are never waited for: what they add, the GPU does.
  const double outside_us =
      load.rider_linear_us + load.transit_us + costs_->OutsideLayersUs(load.num_sampled);
  const double total_us = num_layers() * (times.LayerUs() + HandOverUs(load)) + outside_us;
  return total_us > 0 ? (num_layers() * gpu_us + outside_us) / total_us : 0.0;
}

double TimeModel::PrefillDifferenceUs(double gpu_rows, double prefill_tokens, double other_tokens,
                                      double mean_prompt) const {
  const double layer_us = LinearUs(prefill_tokens + gpu_rows) - LinearUs(other_tokens + gpu_rows) +
                          (prefill_tokens - other_tokens) * PromptTokenAttentionUs(mean_prompt);
  return num_layers() * layer_us;
}

RiderSum::RiderSum(const LayerCosts& costs, IterationLoad* load)
    : costs_(costs), load_(load), main_us_(costs.LinearUs(load->main_rows())) {}

void RiderSum::AddBoundary(int64_t num_rows) {
  if (num_rows > 0) load_->rider_linear_us += costs_.LinearUs(load_->main_rows() + num_rows) - main_us_;
}

void RiderSum::AddVisit(int64_t cursor, int64_t num_rows, const RiderWork& work) {
  load_->rider_rows += num_rows;
  if (cursor + 1 >= costs_.num_layers()) load_->num_sampled += num_rows;
  load_->rider_kv_tokens += work.kv_tokens;
  load_->rider_cpu_us += work.cpu_us();
  load_->rider_exchange_us += work.exchange_us;
}

}  // namespace tandem
