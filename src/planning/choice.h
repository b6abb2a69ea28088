// Stage 6 (NEO 3.2 "Make decisions", Greedy): of all schedules the one with the most work a microsecond, and
// the plan that says so.
#pragma once

#include "plan/iteration_plan.h"
#include "planning/schedules.h"

namespace tandem {

// The best schedule of every budget by its work, of those the best by the work that is wanted. us is 0 if
// there is nothing to do.
Schedule Choose(const Findings& findings);
IterationPlan WritePlan(const Findings& findings, const Schedule& schedule);

}  // namespace tandem
