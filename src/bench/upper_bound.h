// What a machine could make of a workload at best, from its measured costs: the mark that strategies are
// measured against.
#pragma once

#include <cstdint>
#include <span>

#include "bench/workload.h"
#include "perf/layer_costs.h"

namespace tandem {

// Where the KV of running requests can lie, and how prompts are cut.
struct BoundLimits {
  int64_t gpu_tier_tokens = 0;
  int64_t cpu_tier_tokens = 0;
  int64_t max_chunk_tokens = 0;  // of a prompt in one iteration; 0: no limit
};

// Output tokens a second.
struct ThroughputBound {
  double ideal_gpu_only = 0;
  double upper_bound = 0;  // never below ideal_gpu_only
};

// Steady state: every decoded token brings its share of prefill tokens along, r = prompt / output tokens, and
// has the mean context of all decoded tokens.
//
//   T_gpu(g, c) = L * (T_l((g + c) * (1 + r)) + prefill attention + T_ga(g)) + what is outside the layers
//   T_cpu(c)    = L * T_ca(c)
//
// Ideal gpu-only: the best g / T_gpu(g, 0) of all g rows that the gpu tier holds; prefill and decode mix
// perfectly, no memory is lost in blocks. Upper bound: the best (g + c) / max(T_gpu(g, c), T_cpu(c)) of all g
// and c that the tiers hold; weights are read once, the CPU reads without a pause or an exchange beside the
// GPU. Rows are not whole numbers. requests: not empty, each with a prompt and an output.
ThroughputBound BoundThroughput(const LayerCosts& costs, std::span<const WorkloadRequest> requests,
                                const BoundLimits& limits);

}  // namespace tandem
