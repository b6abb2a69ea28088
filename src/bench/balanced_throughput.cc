#include "bench/balanced_throughput.h"

#include "perf/time_model.h"

namespace tandem {

std::optional<double> BalancedThroughput(const LayerCosts& costs, const MeanLengths& lengths,
                                         const WindowWork& work) {
  constexpr double kUsPerSecond = 1e6;
  constexpr double kMostOff = 2;
  const double decodes = work.gpu_tier_tokens + work.cpu_tier_tokens;
  const double wanted = lengths.computed_per_output * decodes;
  if (work.iterations <= 0 || work.seconds <= 0 || decodes <= 0) return std::nullopt;
  if (work.prefill_tokens > kMostOff * wanted || work.prefill_tokens * kMostOff < wanted) return std::nullopt;
  const double iteration_us = work.seconds * kUsPerSecond / work.iterations;
  const double balanced_us =
      iteration_us -
      TimeModel(costs).PrefillDifferenceUs(work.gpu_tier_tokens, work.prefill_tokens, wanted, lengths.prompt);
  if (balanced_us <= 0) return std::nullopt;
  return kUsPerSecond * decodes / balanced_us;
}

}  // namespace tandem
