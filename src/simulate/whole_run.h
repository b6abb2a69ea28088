// A run of requests, played by predicted times from the first arrival until all have ended or the time is
// over: what a benchmark of an engine with these costs would report.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "perf/iteration_load.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "planning/planner_tuning.h"
#include "planning/schedule_state.h"

namespace tandem {

// An engine, as far as a simulation needs one.
struct RunSetup {
  std::string strategy;
  ScheduleLimits limits;
  int64_t block_size = 32;
  int64_t gpu_tokens = 0;  // of the tiers, these two
  int64_t cpu_tokens = 0;
  PlannerTuning tuning;
};

// The machine, where it is not what the strategy's costs say.
struct RunMachine {
  const LayerCosts* costs = nullptr;  // null: the strategy's; outlive the run
  // Times what the GPU takes by them for its part of iterations:
  double pipelined = 1;  // of those that wait for CPU attention
  double riding = 1;     // of those with riders
  double all = 1;        // of all, besides, once the run has taken heats_up_us; in equal steps until then
  double heats_up_us = 0;
  double hand_over_us = 0;  // more, a layer of those that wait for CPU attention
  double noise = 0;         // standard deviation of the logarithm of an iteration's time
  // As in an engine the strategy's costs are corrected by what iterations take.
  bool is_learned = true;
};

struct RunRequest {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double arrival_us = 0;     // ascending from request to request
  std::optional<Tier> tier;  // where it decodes when the run begins; nullopt: it has not begun
  int64_t made_tokens = 0;   // of its output, if it has
};

// Times from the start of the run; below 0: it has not come to that, or had when the run began.
struct RunTimes {
  double arrival_us = 0;
  double first_token_us = -1;
  double end_us = -1;
};

// What the strategy goes by from then on (SteadyPromise).
struct StrategyChange {
  double us = 0;  // from the start of the run
  std::string_view strategy;
};

// Of the window.
struct PlayedRun {
  double us = 0;
  double idle_us = 0;  // of it, with nothing to do
  int64_t iterations = 0;
  int64_t output_tokens = 0;
  int64_t prefill_tokens = 0;
  int64_t num_finished = 0;
  int64_t preemptions = 0;
  double cpu_us = 0;  // of CPU attention
  TimeParts parts;
  // Means over time, by tier: tokens of KV of requests that run, and requests that decode.
  std::array<double, kNumTiers> kv_tokens = {};
  std::array<double, kNumTiers> decodes = {};
  std::vector<StrategyChange> changes;  // of the whole run
  std::vector<RunTimes> times;          // of all requests, in their order, whenever it was
};

// What counts, from the start of the run.
struct RunWindow {
  double begin_us = 0;
  double end_us = std::numeric_limits<double>::infinity();  // where the run stops
};

// costs: outlive the call. Errors: kUnsupported for a strategy that there is not; kInvalidArgument for a plan
// that breaks a rule; kResourceExhausted where a strategy finds nothing to do for requests that wait, or a
// tier has no room for those that have begun.
Result<PlayedRun> PlayRun(const RunSetup& setup, const LayerCosts& costs,
                          std::span<const RunRequest> requests, const RunWindow& window = {});
// costs: what the strategy believes of the machine when the run begins.
Result<PlayedRun> PlayRunOn(const RunMachine& machine, const RunSetup& setup, const LayerCosts& costs,
                            std::span<const RunRequest> requests, const RunWindow& window = {});

}  // namespace tandem
