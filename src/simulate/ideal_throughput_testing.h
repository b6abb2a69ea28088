// The mark that no strategy passes, for tests (bench/upper_bound.h has it for benchmarks).
#pragma once

#include <cstdint>

#include "perf/layer_costs.h"
#include "perf/steady_times.h"

namespace tandem::testing {

// Output tokens a second of the best steady state (IdealTimes of perf/steady_times.h) of all numbers of rows
// that tiers of so many tokens hold.
double IdealThroughput(const IdealMix& mix, const LayerCosts& costs, int64_t gpu_tokens, int64_t cpu_tokens);

}  // namespace tandem::testing
