// NEO's scheduler (section 3.2, appendix A) as a composition of stages, each a function from one struct to
// the next:
//
//   state -> Target -> Room -> Admission -> Schedules -> Choice -> plan
//   target.h           what the work tends to (operating_point.h), which overlap serves it
//   room.h             swaps and preemption, so that all decodes have room (decode_room.h)
//   admission.h        prompts, by tier (prefill_queue.h), and what a token is worth
//   schedules.h        cpu decodes behind the GPU's work (cpu_filling.h), at several amounts of prefill
//   choice.h           the schedule with the most work done a microsecond
//
// The strategies differ in their aims alone.
#pragma once

#include "planning/planning_input.h"

namespace tandem {

IterationPlan PlanByStages(const PlanningInput& input);

}  // namespace tandem
