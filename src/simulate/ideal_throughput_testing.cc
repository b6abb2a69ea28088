#include "simulate/ideal_throughput_testing.h"

#include <algorithm>

namespace tandem::testing {

double IdealThroughput(const IdealMix& mix, const LayerCosts& costs, int64_t gpu_tokens, int64_t cpu_tokens) {
  const IdealTimes ideal(mix, costs);
  const double max_gpu_rows = static_cast<double>(gpu_tokens) / mix.mean_context;
  const double max_cpu_rows = static_cast<double>(cpu_tokens) / mix.mean_context;
  constexpr int kFillings = 16;
  double best = 0;
  for (int filling = 0; filling <= kFillings; ++filling) {
    const double gpu_rows = max_gpu_rows * filling / kFillings;
    for (double cpu_rows = 0; cpu_rows <= max_cpu_rows; cpu_rows += std::max(0.5, 0.01 * cpu_rows)) {
      if (gpu_rows + cpu_rows <= 0) continue;
      best = std::max(best, (gpu_rows + cpu_rows) / ideal.IterationUs(gpu_rows, cpu_rows) * 1e6);
    }
  }
  return best;
}

}  // namespace tandem::testing
