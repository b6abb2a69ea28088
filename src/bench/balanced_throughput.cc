#include "bench/balanced_throughput.h"

#include <cmath>
#include <cstdint>

#include "bench/fractional_rows.h"

namespace tandem {
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
  const auto linear_us = [&](double num_tokens) {
    return Between(num_tokens, [&](int64_t tokens) { return costs.LinearUs(tokens); });
  };
  const double layer_us = linear_us(work.prefill_tokens + work.gpu_tier_tokens) -
                          linear_us(wanted + work.gpu_tier_tokens) +
                          (work.prefill_tokens - wanted) * attention_us;
  const double iteration_us = work.seconds * kUsPerSecond / work.iterations;
  const double balanced_us = iteration_us - static_cast<double>(costs.num_layers()) * layer_us;
  if (balanced_us <= 0) return std::nullopt;
  return kUsPerSecond * decodes / balanced_us;
}

}  // namespace tandem
