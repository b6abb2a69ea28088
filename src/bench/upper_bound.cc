#include "bench/upper_bound.h"

#include <algorithm>

#include "base/check.h"
#include "perf/steady_times.h"
#include "perf/time_model.h"

namespace tandem {
namespace {

IdealMix MixOf(const LayerCosts& costs, std::span<const WorkloadRequest> requests, const MeanLengths& lengths,
               int64_t max_chunk_tokens) {
  const TimeModel time(costs);
  double attention_us = 0;
  double output_tokens = 0;
  for (const WorkloadRequest& request : requests) {
    attention_us +=
        time.PromptAttentionUs(request.prompt_tokens, max_chunk_tokens, request.possible_hit_tokens);
    output_tokens += static_cast<double>(request.output_tokens);
  }
  return {.prompt_tokens_per_output = lengths.computed_per_output,
          .prompt_attention_us = attention_us / output_tokens,
          .mean_context = lengths.context,
          .mean_shared = lengths.context - lengths.own_context};
}

// Output tokens a second while gpu_rows and cpu_rows decode.
double Throughput(const IdealTimes& ideal, double gpu_rows, double cpu_rows) {
  const double iteration_us = ideal.IterationUs(gpu_rows, cpu_rows);
  return iteration_us > 0 ? (gpu_rows + cpu_rows) / iteration_us * 1e6 : 0;
}

// The best of all numbers of cpu rows up to max_cpu_rows.
double BestThroughput(const IdealTimes& ideal, double gpu_rows, double max_cpu_rows) {
  const auto at = [&](double cpu_rows) { return Throughput(ideal, gpu_rows, cpu_rows); };
  double best = at(0);
  // Steps of a row, then of a percent.
  constexpr double kStep = 0.01;
  double below = 0;
  double best_below = 0;
  double best_above = 0;
  for (double rows = 0; rows < max_cpu_rows;) {
    const double next = std::min(rows + std::max(1.0, kStep * rows), max_cpu_rows);
    if (const double throughput = at(next); throughput > best) {
      best = throughput;
      best_below = below;
      best_above = std::min(next + std::max(1.0, kStep * next), max_cpu_rows);
    }
    below = rows;
    rows = next;
  }
  // Around the best step the throughput rises, then falls.
  constexpr int kNumThirds = 60;
  for (int i = 0; i < kNumThirds; ++i) {
    const double third = (best_above - best_below) / 3;
    const double left = at(best_below + third);
    const double right = at(best_above - third);
    best = std::max({best, left, right});
    if (left < right) {
      best_below += third;
    } else {
      best_above -= third;
    }
  }
  return best;
}

}  // namespace

ThroughputBound BoundThroughput(const LayerCosts& costs, std::span<const WorkloadRequest> requests,
                                const BoundLimits& limits) {
  TANDEM_CHECK(!requests.empty(), "the bound of no requests");
  const MeanLengths lengths = MeanLengthsOf(requests);
  const IdealMix mix = MixOf(costs, requests, lengths, limits.max_chunk_tokens);
  const IdealTimes ideal(mix, costs);
  const double max_gpu_rows = static_cast<double>(limits.gpu_tier_tokens) / lengths.own_context;
  const double max_cpu_rows = static_cast<double>(limits.cpu_tier_tokens) / lengths.own_context;
  ThroughputBound bound;
  // A full gpu tier is the best choice but where a few rows less save a step of the linear operations, or
  // where the cpu tier could take all of them.
  constexpr int kNumFillings = 16;
  for (int filling = 0; filling <= kNumFillings; ++filling) {
    const double gpu_rows = max_gpu_rows * filling / kNumFillings;
    bound.ideal_gpu_only = std::max(bound.ideal_gpu_only, Throughput(ideal, gpu_rows, 0));
    bound.upper_bound = std::max(bound.upper_bound, BestThroughput(ideal, gpu_rows, max_cpu_rows));
  }
  return bound;
}

}  // namespace tandem
