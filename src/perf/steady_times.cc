#include "perf/steady_times.h"

#include <algorithm>
#include <cmath>

#include "base/kv_layout.h"
#include "base/largest_that.h"
#include "perf/fractional_rows.h"
#include "perf/shared_reads.h"

namespace tandem {
namespace {

// Of no negative value. As std::llround, whose calls into the library take an eighth of all planning.
int64_t Rounded(double value) {
  const double moved = value + 0.5;
  return static_cast<int64_t>(moved);
}

}  // namespace

SteadyTimes::SteadyTimes(const SteadyMix& mix, const LayerCosts& costs)
    : mix_(mix),
      costs_(costs),
      time_(costs),
      prefill_attention_us_(time_.PromptTokenAttentionUs(mix.mean_prompt)),
      gpu_attention_us_(
          costs.GpuDecodeAttentionUs(Rounded(mix.gpu_rows), Rounded(mix.gpu_rows * mix.mean_context))) {}

double SteadyTimes::PrefilledTokenUs() const {
  return num_layers() * (time_.LinearSlopeUs() + prefill_attention_us_);
}

SteadyTimes::Point SteadyTimes::Asymmetric(double cpu_rows) const {
  const double us = AsymmetricUs(cpu_rows) * costs_.IterationFactor(cpu_rows > 0 ? IterationKind::kPipelined
                                                                                 : IterationKind::kGpuOnly);
  return {cpu_rows, us, (mix_.gpu_rows + cpu_rows) / us};
}

double SteadyTimes::AsymmetricUs(double cpu_rows) const {
  const double prefill = mix_.prompt_tokens_per_output * (mix_.gpu_rows + cpu_rows);
  const double gpu_attention_us = gpu_attention_us_ + prefill * prefill_attention_us_;
  // One sub-batch, then two: as many rows in the main one as hide there, and as few as let the cohort hide.
  double layer_us = LayerUs(cpu_rows, cpu_rows, prefill, gpu_attention_us);
  if (cpu_rows > 0) {
    const auto whole_rows = static_cast<int64_t>(cpu_rows);
    const auto most = static_cast<double>(LargestThat(whole_rows, [&](int64_t n) {
      const auto main_rows = static_cast<double>(n);
      return CpuUs(main_rows) <= costs_.LinearUs(Rounded(cpu_rows - main_rows)) + gpu_attention_us;
    }));
    const double fewest = cpu_rows - static_cast<double>(LargestThat(whole_rows, [&](int64_t n) {
                            const auto cohort_rows = static_cast<double>(n);
                            const double main_rows = prefill + mix_.gpu_rows + cpu_rows - cohort_rows;
                            return CpuUs(cohort_rows) <= costs_.LinearUs(Rounded(main_rows));
                          }));
    layer_us = std::min({layer_us, LayerUs(cpu_rows, most, prefill, gpu_attention_us),
                         LayerUs(cpu_rows, fewest, prefill, gpu_attention_us)}) +
               costs_.HandOverUs();
  }
  const double sampled = (mix_.gpu_rows + cpu_rows) + prefill / mix_.mean_prompt;
  return num_layers() * layer_us + costs_.OutsideLayersUs(Rounded(sampled));
}

double SteadyTimes::LayerUs(double cpu_rows, double main_cpu_rows, double prefill,
                            double gpu_attention_us) const {
  const double cohort_rows = cpu_rows - main_cpu_rows;
  const LayerTimes times = {
      .linear_main_us = costs_.LinearUs(Rounded(prefill + mix_.gpu_rows + main_cpu_rows)),
      .linear_cohort_us = costs_.LinearUs(Rounded(cohort_rows)),
      .gpu_attention_us = gpu_attention_us,
      .cpu_main_us = CpuUs(main_cpu_rows),
      .cpu_cohort_us = CpuUs(cohort_rows)};
  return times.LayerUs();
}

double SteadyTimes::CpuUs(double rows) const {
  return rows == 0 ? 0 : time_.CpuUs(Rounded(rows), ReadTokens(rows));
}

int64_t SteadyTimes::ReadTokens(double rows) const {
  if (mix_.mean_shared == 0) return Rounded(rows * mix_.mean_context);
  return Rounded(rows * (mix_.mean_context - mix_.mean_shared) +
                 ReadsForRows(Rounded(rows), costs_) * mix_.mean_shared);
}

// The share f of visits and the time T depend on one another; T hardly on f.
SteadyTimes::Point SteadyTimes::Asynchronous(double cpu_rows) const {
  constexpr int kRounds = 3;
  const double num_visits = num_layers() + 1;
  const double num_cohorts = std::max(1.0, std::min(mix_.num_cohorts, cpu_rows));
  const double cohort_rows = std::ceil(cpu_rows / num_cohorts);
  // No attention follows the last of a token's visits.
  const double cpu_us = num_cohorts * (num_visits - 1) / num_visits *
                        costs_.CpuAttentionUs(Rounded(cohort_rows), ReadTokens(cohort_rows));
  const double factor =
      costs_.IterationFactor(cpu_rows > 0 ? IterationKind::kRiding : IterationKind::kGpuOnly);
  double share = 1;
  Point point{.cpu_rows = cpu_rows};
  for (int round = 0; round < kRounds; ++round) {
    const double visited_rows = share * cpu_rows / num_visits;  // = tokens
    const double tokens = mix_.gpu_rows + visited_rows;
    const double prefill = mix_.prompt_tokens_per_output * tokens;
    const double main_us = costs_.LinearUs(Rounded(prefill + mix_.gpu_rows));
    // Where a cohort visits, its rows come on top; the other layers see none.
    const double with_riders_us =
        costs_.LinearUs(Rounded(prefill + mix_.gpu_rows + (share > 0 ? cohort_rows : 0)));
    point.iteration_us = num_layers() * (main_us + gpu_attention_us_ + prefill * prefill_attention_us_) +
                         std::min(num_cohorts * share, num_layers()) * (with_riders_us - main_us) +
                         costs_.OutsideLayersUs(Rounded(tokens + prefill / mix_.mean_prompt));
    point.iteration_us *= factor;
    point.rate = tokens / point.iteration_us;
    share = cpu_us == 0 ? 1 : std::min(1.0, point.iteration_us / cpu_us);
  }
  return point;
}

double IdealTimes::IterationUs(double gpu_rows, double cpu_rows) const {
  return std::max(GpuUs(gpu_rows, gpu_rows + cpu_rows), CpuUs(cpu_rows));
}

int64_t IdealTimes::ContextTokens(int64_t num_rows) const {
  return Rounded(static_cast<double>(num_rows) * mix_.mean_context);
}

int64_t IdealTimes::ReadTokens(int64_t num_rows) const {
  if (mix_.mean_shared == 0) return ContextTokens(num_rows);
  const auto rows = static_cast<double>(num_rows);
  const double reads = costs_.SharedReadCost(std::min(num_rows, kRowsPerGroup)) *
                       std::max(1.0, rows / static_cast<double>(kRowsPerGroup));
  return Rounded(rows * (mix_.mean_context - mix_.mean_shared) + reads * mix_.mean_shared);
}

double IdealTimes::GpuUs(double gpu_rows, double num_rows) const {
  if (num_rows == 0) return 0;
  // There is no iteration of less than a row.
  const double linear_us = time_.LinearUs(std::max(1.0, num_rows * (1 + mix_.prompt_tokens_per_output)));
  const double decode_us = Between(
      gpu_rows, [this](int64_t rows) { return costs_.GpuDecodeAttentionUs(rows, ContextTokens(rows)); });
  const double outside_us = Between(
      std::max(1.0, num_rows), [this](int64_t num_sampled) { return costs_.OutsideLayersUs(num_sampled); });
  return static_cast<double>(costs_.num_layers()) *
             (linear_us + num_rows * mix_.prompt_attention_us + decode_us) +
         outside_us;
}

double IdealTimes::CpuUs(double cpu_rows) const {
  return static_cast<double>(costs_.num_layers()) *
         Between(cpu_rows, [this](int64_t rows) { return costs_.CpuAttentionUs(rows, ReadTokens(rows)); });
}

}  // namespace tandem
