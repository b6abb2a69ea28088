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

// In a steady state in which every decoded token has the mean context of all decoded tokens and brings its
// share of prefill tokens along, with the ideal times of perf/steady_times.h: prefill and decode mix
// perfectly, no memory is lost in blocks.
//
// Of a prompt only what no earlier request has computed is work, and what rows have in common takes room
// once, as if it took none; in the cpu tier it is read for as many rows as CPU attention can at once.
//
// Of shards: costs are of one, which does its part of every row, with their sums in the linear operations;
// tiers and throughput are of all.
//
// Ideal gpu-only: the best g / T_gpu(g, 0) of all g rows that the gpu tier holds. Upper bound: the best
// (g + c) / T of all g and c that the tiers hold. requests: not empty, each with a prompt and an output.
ThroughputBound BoundThroughput(const LayerCosts& costs, std::span<const WorkloadRequest> requests,
                                const BoundLimits& limits);

}  // namespace tandem
