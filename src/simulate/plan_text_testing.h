// A plan as text that lists every row with its tier, in the same words whatever the plan is made of. For
// comparing the plans of two states of the scheduler; people read plan/plan_printer.h.
#pragma once

#include <string>

#include "plan/iteration_plan.h"

namespace tandem::testing {

// number: of the iteration, counted by the caller.
//   iteration 12 asymmetric
//   drop 3 | preempt 7 | move 4 to cpu
//   main 5 [0, 512) tier cpu attention gpu logits from 511
//   cohort 2 cursor 4 rides 4@4
//     row 9 [12, 13) tier cpu attention cpu logits from 12
std::string PlanText(const IterationPlan& plan, int64_t number);

}  // namespace tandem::testing
