// Joules in a benchmark's report.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "bench/bench_run.h"

namespace tandem {

// Sets report["energy"]; null without a meter. Joules a token stand there only if all of the machine that
// works for them is in it: the host, and the GPU if there is one (uses_gpu).
void AddEnergyFields(const BenchRun& run, bool uses_gpu, int64_t output_tokens,
                     nlohmann::ordered_json* report);

}  // namespace tandem
