#include "bench/upper_bound.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "bench/fractional_rows.h"

namespace tandem {
namespace {

// A workload in the mean of its decoded tokens.
struct MeanToken {
  double prefill_tokens = 0;        // that come with it: r
  double prefill_attention_us = 0;  // of those, one layer
  double context_len = 0;           // tokens that its row reads
};

double PromptAttentionUs(const LayerCosts& costs, int64_t prompt_len, int64_t max_chunk_tokens) {
  const int64_t chunk_len = max_chunk_tokens > 0 ? max_chunk_tokens : prompt_len;
  double sum_us = 0;
  for (int64_t start = 0; start < prompt_len; start += chunk_len) {
    const int64_t end = std::min(start + chunk_len, prompt_len);
    sum_us += costs.PrefillAttentionUs(end - start, end);
  }
  return sum_us;
}

MeanToken MeanOf(const LayerCosts& costs, std::span<const WorkloadRequest> requests,
                 int64_t max_chunk_tokens) {
  const MeanLengths lengths = MeanLengthsOf(requests);
  double attention_us = 0;
  double output_tokens = 0;
  for (const WorkloadRequest& request : requests) {
    attention_us += PromptAttentionUs(costs, request.prompt_tokens, max_chunk_tokens);
    output_tokens += static_cast<double>(request.output_tokens);
  }
  return {.prefill_tokens = lengths.prompt_per_output,
          .prefill_attention_us = attention_us / output_tokens,
          .context_len = lengths.context};
}

class SteadyState {
 public:
  SteadyState(const LayerCosts& costs, const MeanToken& token) : costs_(costs), token_(token) {}

  // Output tokens a second while gpu_rows and cpu_rows decode.
  double Throughput(double gpu_rows, double cpu_rows) const {
    const double num_rows = gpu_rows + cpu_rows;
    const double iteration_us = std::max(GpuUs(gpu_rows, num_rows), CpuUs(cpu_rows));
    return iteration_us > 0 ? num_rows / iteration_us * 1e6 : 0;
  }

  // The best of all numbers of cpu rows up to max_cpu_rows.
  double BestThroughput(double gpu_rows, double max_cpu_rows) const {
    const auto at = [&](double cpu_rows) { return Throughput(gpu_rows, cpu_rows); };
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

 private:
  int64_t ContextTokens(int64_t num_rows) const {
    return std::llround(static_cast<double>(num_rows) * token_.context_len);
  }

  double GpuUs(double gpu_rows, double num_rows) const {
    if (num_rows == 0) return 0;
    // There is no iteration of less than a row.
    const double linear_us = Between(std::max(1.0, num_rows * (1 + token_.prefill_tokens)),
                                     [this](int64_t num_tokens) { return costs_.LinearUs(num_tokens); });
    const double decode_us = Between(
        gpu_rows, [this](int64_t rows) { return costs_.GpuDecodeAttentionUs(rows, ContextTokens(rows)); });
    const double outside_us = Between(
        std::max(1.0, num_rows), [this](int64_t num_sampled) { return costs_.OutsideLayersUs(num_sampled); });
    return static_cast<double>(costs_.num_layers()) *
               (linear_us + num_rows * token_.prefill_attention_us + decode_us) +
           outside_us;
  }

  double CpuUs(double cpu_rows) const {
    return static_cast<double>(costs_.num_layers()) * Between(cpu_rows, [this](int64_t rows) {
             return costs_.CpuAttentionUs(rows, ContextTokens(rows));
           });
  }

  const LayerCosts& costs_;
  const MeanToken token_;
};

}  // namespace

ThroughputBound BoundThroughput(const LayerCosts& costs, std::span<const WorkloadRequest> requests,
                                const BoundLimits& limits) {
  TANDEM_CHECK(!requests.empty(), "the bound of no requests");
  const MeanToken token = MeanOf(costs, requests, limits.max_chunk_tokens);
  const SteadyState state(costs, token);
  const double max_gpu_rows = static_cast<double>(limits.gpu_tier_tokens) / token.context_len;
  const double max_cpu_rows = static_cast<double>(limits.cpu_tier_tokens) / token.context_len;
  ThroughputBound bound;
  // A full gpu tier is the best choice but where a few rows less save a step of the linear operations, or
  // where the cpu tier could take all of them.
  constexpr int kNumFillings = 16;
  for (int filling = 0; filling <= kNumFillings; ++filling) {
    const double gpu_rows = max_gpu_rows * filling / kNumFillings;
    bound.ideal_gpu_only = std::max(bound.ideal_gpu_only, state.Throughput(gpu_rows, 0));
    bound.upper_bound = std::max(bound.upper_bound, state.BestThroughput(gpu_rows, max_cpu_rows));
  }
  return bound;
}

}  // namespace tandem
