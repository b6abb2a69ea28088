// Costs that a machine had, from a profile that was kept (tests/fixtures/profiles).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "perf/cost_table.h"

namespace tandem::testing {

// As far as that profile reaches.
constexpr int64_t kMeasuredMaxContext = 131'072;
constexpr int64_t kMeasuredGpuTokens = 16'000;
constexpr int64_t kMeasuredCpuTokens = 200'000;

// Of Llama-3.1-8B in bf16 on a slice of 16 SMs of an H200, with 14 threads of CPU attention.
Result<CostTable> MeasuredCosts();

}  // namespace tandem::testing
