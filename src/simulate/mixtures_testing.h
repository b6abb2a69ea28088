// Work and machines that nobody chose: drawn from a seed. Constants may be tuned on them; the traces are for
// checking (docs/held_out.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/analytic_costs.h"
#include "traces/trace_csv.h"

namespace tandem::testing {

struct MixtureMachine {
  std::string_view name;
  AnalyticCosts costs;
  int64_t gpu_tokens = 0;
  int64_t cpu_tokens = 0;
  int64_t max_request_tokens = 0;  // half of the gpu tier at most: who serves it without a cpu tier
};

// Requests and the machine that serves them: which one, with how much of its CPU and how large tiers.
struct Mixture {
  std::string name;  // what was drawn
  MixtureMachine machine;
  std::vector<TraceRequest> requests;  // all are there from the start
};

// A function of its arguments alone, with every standard library.
Mixture DrawMixture(uint32_t seed, size_t num_requests);

// Output tokens a second from the first request to the end of the last, by predicted times. A plan that
// breaks a rule is a test's failure, and 0.
double MixtureThroughput(const Mixture& mixture, std::string_view strategy);

}  // namespace tandem::testing
