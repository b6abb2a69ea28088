// Stage 1 (NEO 3.2 "Initialization", and the principles Balancing and Maximizing GPU in numbers): what the
// work tends to, and which overlap serves it.
#pragma once

#include <cstdint>

#include "plan/iteration_plan.h"
#include "planning/operating_point.h"
#include "planning/planning_input.h"
#include "planning/tier_books.h"

namespace tandem {

struct Target {
  OperatingPoint point;           // of the cpu tier
  OperatingPoint riding;          // with asynchronous overlap, where that may be used
  bool rides = false;             // cpu rows ride in this plan
  bool is_riding = false;         // point is riding
  bool holds_riders = false;      // riding is of the rows that ride already, and of no more
  double max_iteration_us = 0;    // 0: no limit
  int64_t max_cpu_sequences = 0;  // that the cpu tier takes in
  // A token of a row that rides takes too long for sequences that are not flexible.
  bool riding_is_slow = false;
  SteadyPromise promise;

  // Of either overlap; else what overflows the gpu tier is all that is in the cpu tier.
  bool wants_cpu_rows() const { return point.cpu_rows > 0 || riding.cpu_rows > 0; }
  bool within_limit(double us) const { return max_iteration_us <= 0 || us <= max_iteration_us; }
  bool may_ride(const RunningSequence& sequence) const { return sequence.flexible || !riding_is_slow; }
};

Target FindTarget(const PlanningInput& input, const TierBooks& books);

// Whether the steady state in which every decode is in the cpu tier promises more than those in which the gpu
// tier has its own: where that holds few requests, so that one sub-batch of them hides little of the CPU's
// attention. Only while others wait: with fewer requests two tiers are faster. More is asked to begin than to
// go on.
bool PaysToOffloadAll(const PlanningInput& input, const TierBooks& books);

}  // namespace tandem
