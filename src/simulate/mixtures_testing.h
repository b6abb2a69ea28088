// Work and machines that nobody chose: drawn from a seed. Constants may be tuned on them; the traces are for
// checking (docs/held_out.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulate/whole_run_testing.h"
#include "traces/trace_csv.h"

namespace tandem::testing {

// Requests and the machine that serves them: which one, with how much of its CPU and how large tiers.
struct Mixture {
  std::string name;  // what was drawn
  PlayedMachine machine;
  std::vector<TraceRequest> requests;  // all are there from the start
};

// A function of its arguments alone, with every standard library.
Mixture DrawMixture(uint32_t seed, size_t num_requests);

// Of values in any order; share: 0 is the least, 1 the largest.
double QuantileOf(std::vector<double> values, double share);

}  // namespace tandem::testing
