// A benchmark that begins amid the work: the gpu tier is full of requests that have made parts of their
// output, and the cpu tier has as many of them as the strategy keeps there, as after a while. More would only
// run out: output without the prefill that goes with it. What the tiers hold at that moment is not the KV of
// these tokens, so what is generated means nothing; how long everything takes is the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/workload.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "planning/schedule_state.h"

namespace tandem {

// Of an engine that has nothing to do.
struct TierRoom {
  int64_t block_size = 0;  // tokens
  int64_t gpu_blocks = 0;
  int64_t cpu_blocks = 0;
  int64_t max_num_seqs = 0;
  int64_t max_cpu_requests = 0;  // that begin in the cpu tier
};

// Marks the first requests as begun, as many as fit, and returns their number. The shares of their output
// that they have made are spread evenly over [0, 1): a function of their place only. Where lengths differ
// much, the requests found amid their output at a random moment are longer than the mean request; these are
// not.
int64_t BeginAmidWork(const TierRoom& room, std::vector<WorkloadRequest>* requests);

// In which tier an engine puts each request that has begun, in their order; nullopt: it has not begun, or
// there is no place for it.
std::vector<std::optional<Tier>> PlacesOf(const TierRoom& room, const std::vector<WorkloadRequest>& requests);

// A strategy that plays on from there by predicted times.
struct SteadyPlay {
  std::string strategy;
  ScheduleLimits limits;
  const LayerCosts* costs = nullptr;
  // Predicted ones, at least; more where the cpu tier takes long to fill, less if all would begin in them
  // that are not kept for the run.
  double seconds = 120;
};

struct SteadyRequests {
  int64_t num_begun = 0;
  int64_t num_in_cpu_tier = 0;  // of them
  double played_s = 0;
};

// After BeginAmidWork. Plays the work until the tiers hold what the strategy keeps in them on average: so
// many requests, and such as are found there at a random moment; what they have made of their outputs is
// spread evenly again. It is what lasts for some seconds once nobody is amid a token. Those that ended
// meanwhile are taken out of *requests; those that decode come first, begun, the gpu tier's before the cpu
// tier's; the others have not begun. Of these the last third of all requests comes first, in its order: a
// trace has hours with longer prompts, and who enters a run is to be the same for all strategies, however
// long each was played. What is played is the rest, shuffled. Errors: a plan that is empty or breaks a rule;
// *requests is then as it was.
Result<SteadyRequests> PlayIntoSteadyState(const TierRoom& room, const SteadyPlay& play,
                                           std::vector<WorkloadRequest>* requests);

}  // namespace tandem
