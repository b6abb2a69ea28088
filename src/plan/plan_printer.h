// A plan as text, for logs, messages and scenario tests.
#pragma once

#include <string>

#include "plan/iteration_plan.h"

namespace tandem {

// One line a part, in plan order; parts that are empty are left out:
//   drop 2
//   preempt 7
//   move 4 to cpu
//   prefill 3 [0, 512) samples
//   prefill 8 [0, 512) to cpu
//   gpu-decode 1@40 2@17
//   cpu-decode 5@90
//   cohort 1 cursor -1 rows 6@8 visits -1@-1 0@0
//   cohort 3 cursor 4 rows 9@12 rides 4@4
// A span that gives more logits than those of its last row says "logits from POSITION" in place of "samples";
// one of several rows that attends in the cpu tier is 5@90+3.
std::string PrintPlan(const IterationPlan& plan);

}  // namespace tandem
