// What a report says of sessions, and of prompts that begin alike.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/bench_run.h"

namespace tandem {

// Adds "sessions", null if the workload had none, and "prefix_hits", null if its prompts share nothing. As in
// the rest of the report, what starts in a window counts if there is one.
void AddSessionFields(const BenchRun& run, nlohmann::ordered_json* report);

}  // namespace tandem
