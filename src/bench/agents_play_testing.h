// Sessions of agents played by predicted times: the workload and the histories of the benchmark, the books
// and strategies of the engine, and iterations that take what their costs say. A forecast of what a GPU will
// do.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "perf/layer_costs.h"

namespace tandem {

struct AgentsMachine {
  const LayerCosts* costs = nullptr;
  int64_t gpu_tokens = 0;
  int64_t cpu_tokens = 0;  // 0: none
  bool caching = true;
};

struct AgentsLoad {
  std::string workload = "agents:answers=seeded";
  int64_t num_sessions = 0;
  double sessions_per_s = 0;  // Poisson; 0: one begins as soon as another has ended
  int64_t num_at_once = 0;    // then
  double pause_s = 0;         // mean
};

// Of turns that were due once as many sessions are there as on average, and before the last one began.
struct AgentsPlayed {
  int64_t num_turns = 0;
  double turn_p50_s = 0;  // from when it is sent to its last token
  double turn_p99_s = 0;
  double first_token_p50_s = 0;
  double first_token_p99_s = 0;
  double turns_per_minute = 0;
  double sessions_per_minute = 0;
  double mean_sessions = 0;   // begun and not ended, pauses included
  double mean_kv_tokens = 0;  // of these: what they have in common once
  // Of all turns.
  int64_t prompt_tokens = 0;
  int64_t possible_hits = 0;   // tokens in whole blocks that an earlier turn had computed
  int64_t computed_twice = 0;  // of those, not found, and tokens computed again after a preemption
  int64_t num_preemptions = 0;
  int64_t rows_gpu = 0;  // decoded tokens
  int64_t rows_cpu = 0;
  int64_t copied_down = 0;  // blocks
  double most_in_use = 0;   // share of both tiers that running requests held at once
  double gpu_s = 0;         // of the iterations
  double cpu_attention_s = 0;
  double plan_us = 0;  // mean, by the clock of this machine
  std::map<std::string, int64_t> shapes;
};

// A plan that breaks a rule is a test's failure.
AgentsPlayed PlayAgents(std::string_view strategy, const AgentsMachine& machine, const AgentsLoad& load);

}  // namespace tandem
