// Down before out: what the gpu tier keeps for who begins alike is copied to the cpu tier before its room is
// given out (docs/prefix_cache.md).
//
//   free blocks of the gpu tier   | nothing, or copied: without loss | to be copied |
//                                 |<------------ margin ------------------->|
#pragma once

#include <cstdint>

#include "plan/iteration_plan.h"
#include "planning/planning_input.h"
#include "planning/tier_books.h"

namespace tandem {

// Whether prompts of late began with what was cached often enough.
bool CopiesPay(const ScheduleState& state, const PlannerTuning& tuning);

// Beside the work of an iteration of us microseconds: as many as take no noticeable time of it.
CopyDown CopyDownBeside(const PlanningInput& input, double us);

// Free blocks that whoever is admitted leaves to the copies of the next iterations. None where copies do not
// pay or have got as far as they go, and none where nobody runs: there is no iteration to copy them in.
int64_t BlocksLeftToCopies(const ScheduleState& state, const TierBooks& books);

}  // namespace tandem
