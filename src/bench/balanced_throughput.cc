#include "bench/balanced_throughput.h"

#include <cmath>
#include <cstdint>

namespace tandem {
namespace {

// Costs are per whole token; an iteration's mean is not whole.
double LinearUs(const LayerCosts& costs, double num_tokens) {
  const double below = std::floor(num_tokens);
  const auto whole = static_cast<int64_t>(below);
  const double us = costs.LinearUs(whole);
  return us + (num_tokens - below) * (costs.LinearUs(whole + 1) - us);
}

}  // namespace

std::optional<double> BalancedThroughput(const LayerCosts& costs, const MeanLengths& lengths,
                                         const WindowWork& work) {
  constexpr double kUsPerSecond = 1e6;
  constexpr double kMostOff = 2;
  const double decodes = work.gpu_tier_tokens + work.cpu_tier_tokens;
  const double wanted = lengths.prompt_per_output * decodes;
  if (work.iterations <= 0 || work.seconds <= 0 || decodes <= 0) return std::nullopt;
  if (work.prefill_tokens > kMostOff * wanted || work.prefill_tokens * kMostOff < wanted) return std::nullopt;
  const auto mean_prompt = static_cast<int64_t>(std::llround(lengths.prompt));
  const double attention_us = costs.PrefillAttentionUs(mean_prompt, mean_prompt) / lengths.prompt;
  const double layer_us = LinearUs(costs, work.prefill_tokens + work.gpu_tier_tokens) -
                          LinearUs(costs, wanted + work.gpu_tier_tokens) +
                          (work.prefill_tokens - wanted) * attention_us;
  const double iteration_us = work.seconds * kUsPerSecond / work.iterations;
  const double balanced_us = iteration_us - static_cast<double>(costs.num_layers()) * layer_us;
  if (balanced_us <= 0) return std::nullopt;
  return kUsPerSecond * decodes / balanced_us;
}

}  // namespace tandem
