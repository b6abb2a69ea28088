#include "schedule/operating_point.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/largest_that.h"

namespace tandem {
namespace {

// The last percents of throughput cost the most requests: each doubles the rows that wait for one another.
constexpr double kNextRows = 1.25;
constexpr double kNearlyBest = 0.98;
int64_t Rounded(double value) {
  return std::llround(value);
}

// Slope of the linear operations where they are bound by arithmetic.
double LinearSlopeUs(const LayerCosts& costs) {
  constexpr int64_t kFew = 1024;
  constexpr int64_t kMany = 2048;
  return (costs.LinearUs(kMany) - costs.LinearUs(kFew)) / (kMany - kFew);
}

class SteadyState {
 public:
  SteadyState(const SteadyWork& work, Overlap overlap, const LayerCosts& costs)
      : work_(work),
        overlap_(overlap),
        costs_(costs),
        prefill_attention_us_(costs.PrefillAttentionUs(Rounded(work.mean_prompt), Rounded(work.mean_prompt)) /
                              work.mean_prompt),
        gpu_attention_us_(
            costs.GpuDecodeAttentionUs(Rounded(work.gpu_rows), Rounded(work.gpu_rows * work.mean_context))) {}

  double prefill_attention_us() const { return prefill_attention_us_; }

  struct Point {
    double cpu_rows = 0;
    double iteration_us = 0;
    double rate = 0;  // X
  };
  Point At(double cpu_rows) const {
    return overlap_ == Overlap::kAsymmetric ? Asymmetric(cpu_rows) : Asynchronous(cpu_rows);
  }

 private:
  Point Asymmetric(double cpu_rows) const {
    const double us = AsymmetricUs(cpu_rows);
    return {cpu_rows, us, (work_.gpu_rows + cpu_rows) / us};
  }

  // The share f of visits and the time T depend on one another; T hardly on f.
  Point Asynchronous(double cpu_rows) const {
    constexpr int kRounds = 3;
    const double num_visits = static_cast<double>(costs_.num_layers()) + 1;
    const double num_cohorts = std::max(1.0, std::min(work_.num_cohorts, cpu_rows));
    const double cohort_rows = std::ceil(cpu_rows / num_cohorts);
    // No attention follows the last of a token's visits.
    const double cpu_us =
        cpu_rows == 0
            ? 0
            : num_cohorts * (num_visits - 1) / num_visits *
                  costs_.CpuAttentionUs(Rounded(cohort_rows), Rounded(cohort_rows * work_.mean_context));
    double share = 1;
    Point point{.cpu_rows = cpu_rows};
    for (int round = 0; round < kRounds; ++round) {
      const double visited_rows = share * cpu_rows / num_visits;  // = tokens
      const double tokens = work_.gpu_rows + visited_rows;
      const double prefill = work_.prompt_tokens_per_output * tokens;
      const double main_us = costs_.LinearUs(Rounded(prefill + work_.gpu_rows));
      // Where a cohort visits, its rows come on top; the other layers see none.
      const double with_riders_us =
          costs_.LinearUs(Rounded(prefill + work_.gpu_rows + (share > 0 ? cohort_rows : 0)));
      const double num_layers = static_cast<double>(costs_.num_layers());
      point.iteration_us = num_layers * (main_us + gpu_attention_us_ + prefill * prefill_attention_us_) +
                           std::min(num_cohorts * share, num_layers) * (with_riders_us - main_us) +
                           costs_.OutsideLayersUs(Rounded(tokens + prefill / work_.mean_prompt));
      point.rate = tokens / point.iteration_us;
      share = cpu_us == 0 ? 1 : std::min(1.0, point.iteration_us / cpu_us);
    }
    return point;
  }

  // T(g, c, p) of the whole iteration.
  double AsymmetricUs(double cpu_rows) const {
    const double prefill = work_.prompt_tokens_per_output * (work_.gpu_rows + cpu_rows);
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
                              const double main_rows = prefill + work_.gpu_rows + cpu_rows - cohort_rows;
                              return CpuUs(cohort_rows) <= costs_.LinearUs(Rounded(main_rows));
                            }));
      layer_us = std::min({layer_us, LayerUs(cpu_rows, most, prefill, gpu_attention_us),
                           LayerUs(cpu_rows, fewest, prefill, gpu_attention_us)});
    }
    const double sampled = (work_.gpu_rows + cpu_rows) + prefill / work_.mean_prompt;
    return static_cast<double>(costs_.num_layers()) * layer_us + costs_.OutsideLayersUs(Rounded(sampled));
  }

  double LayerUs(double cpu_rows, double main_cpu_rows, double prefill, double gpu_attention_us) const {
    const double cohort_rows = cpu_rows - main_cpu_rows;
    const double main_us = costs_.LinearUs(Rounded(prefill + work_.gpu_rows + main_cpu_rows));
    return std::max(main_us, CpuUs(cohort_rows)) +
           std::max(costs_.LinearUs(Rounded(cohort_rows)) + gpu_attention_us, CpuUs(main_cpu_rows));
  }

  double CpuUs(double rows) const {
    if (rows == 0) return 0;
    return costs_.CpuAttentionUs(Rounded(rows), Rounded(rows * work_.mean_context)) +
           costs_.ExchangeUs(Rounded(rows));
  }

  const SteadyWork& work_;
  Overlap overlap_;
  const LayerCosts& costs_;
  double prefill_attention_us_;  // a token and layer
  double gpu_attention_us_;      // of the gpu tier's decodes
};

}  // namespace

double DecodedTokenUs(const SteadyWork& work, double prefilled_token_us, double rate) {
  return std::max(prefilled_token_us, 1 / rate - work.prompt_tokens_per_output * prefilled_token_us);
}

OperatingPoint FindOperatingPoint(const SteadyWork& work, Overlap overlap, const LayerCosts& costs) {
  const SteadyState steady(work, overlap, costs);
  // Riding rows share the rows of an iteration with prefill and decodes only as far as they visit.
  const double rows_with_prefill = overlap == Overlap::kAsynchronous
                                       ? work.max_cpu_rows
                                       : work.max_rows / (1 + work.prompt_tokens_per_output) - work.gpu_rows;
  const double max_cpu_rows = std::floor(std::max(0.0, std::min(work.max_cpu_rows, rows_with_prefill)));

  std::array<SteadyState::Point, 64> points;
  size_t num_points = 0;
  // 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, ..., max_cpu_rows
  for (double rows = 0; num_points < points.size();) {
    if (work.gpu_rows + rows > 0) {
      const SteadyState::Point point = steady.At(rows);
      if (num_points > 0 && work.max_iteration_us > 0 && point.iteration_us > work.max_iteration_us) break;
      points[num_points++] = point;
    }
    if (rows >= max_cpu_rows) break;
    rows = std::min(max_cpu_rows, std::floor(std::max(rows + 1, rows * kNextRows)));
  }
  double best = 0;
  for (size_t i = 0; i < num_points; ++i) best = std::max(best, points[i].rate);
  const SteadyState::Point* chosen =
      std::find_if(points.begin(), points.begin() + static_cast<std::ptrdiff_t>(num_points),
                   [best](const SteadyState::Point& point) { return point.rate >= kNearlyBest * best; });
  const bool gpu_tier_decodes = num_points > 0 && points[0].cpu_rows == 0;
  const bool must_be_worth_it =
      overlap == Overlap::kAsymmetric && gpu_tier_decodes && 2 * work.present_cpu_rows < chosen->cpu_rows;
  if (must_be_worth_it && chosen->rate < kWorthSplitting * points[0].rate) chosen = points.begin();

  OperatingPoint result;
  result.prefilled_token_us =
      static_cast<double>(costs.num_layers()) * (LinearSlopeUs(costs) + steady.prefill_attention_us());
  result.decoded_token_us = result.prefilled_token_us;
  if (num_points == 0) return result;
  result.cpu_rows = Rounded(chosen->cpu_rows);
  result.rate = chosen->rate;
  result.iteration_us = chosen->iteration_us;
  result.decoded_token_us = DecodedTokenUs(work, result.prefilled_token_us, chosen->rate);
  return result;
}

double SteadyRate(const SteadyWork& work, double cpu_rows, Overlap overlap, const LayerCosts& costs) {
  return work.gpu_rows + cpu_rows <= 0 ? 0 : SteadyState(work, overlap, costs).At(cpu_rows).rate;
}

}  // namespace tandem
