// What a window amid the work would have made if its prompts had gone with its outputs: windows in which a
// tier was filled, or ran out, become comparable.
#pragma once

#include <optional>

#include "bench/workload.h"
#include "perf/layer_costs.h"

namespace tandem {

// What an engine did in a window; tokens are means of an iteration.
struct WindowWork {
  double seconds = 0;
  double iterations = 0;
  double prefill_tokens = 0;
  double gpu_tier_tokens = 0;  // decoded
  double cpu_tier_tokens = 0;
};

// Output tokens a second. By what the prompt tokens that are too many (or too few) take in the iterations
// that ran, from measured costs:
//
//   X = d / (T - TimeModel::PrefillDifferenceUs(g, p, r d))     d = g + c
//
// nullopt if there was nothing, or if prompts were less than half or more than twice what goes with the
// outputs: then the window says little about the steady state.
std::optional<double> BalancedThroughput(const LayerCosts& costs, const MeanLengths& lengths,
                                         const WindowWork& work);

}  // namespace tandem
