// Stage 4 and 5 (NEO 3.2 "Schedule CPU decoding requests", "Reduce prefilling requests"): the schedules that
// an iteration may have, each with its price and the work that is done in it.
//
// Work, not requests or raw tokens, is what counts: a prefilled and a decoded token stand for so many
// microseconds of the steady state (operating_point.h). A row that rides does one of the L + 1 visits of a
// token, so that is the share of a token's work that counts for it (APEX section 3.3). Cohorts amid a token
// ride in every schedule, unless they make all visits left of it at once, furthest first, behind the GPU's
// work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "perf/iteration_load.h"
#include "planning/admission.h"
#include "planning/cpu_filling.h"
#include "planning/planning_input.h"
#include "planning/room.h"
#include "planning/target.h"

namespace tandem {

// What the stages before have found.
struct Findings {
  const PlanningInput& input;
  const Target& target;
  const Room& room;
  const Admission& admission;

  bool has_main() const { return !room.gpu_rows.empty() || admission.prompts.num_tokens() > 0; }
};

struct Schedule {
  int64_t prefill_tokens = 0;
  CpuFill fill;
  bool alone = false;  // of ProposeRowsAlone: rows that could ride run as well
  // Of the cohorts amid a token, those that make the visits left of it in one go: [own_begin, own_end).
  size_t own_begin = 0;
  size_t own_end = 0;
  IterationLoad load;  // without moves
  double us = 0;       // 0: an empty schedule
  double work_us = 0;  // done in it, in microseconds of the operating point
  double wanted_work_us =
      0;  // the same, with prefill as it is wanted: up to what the decodes use up it counts more
};

using TakeSchedule = std::function<void(const Schedule&)>;

// Amounts of prefill to compare, ascending. Without a limit of iterations never none while there is any:
// prompts that are begun must end.
std::vector<int64_t> PrefillBudgets(const Findings& findings);
// Cpu decodes behind the GPU's work, and the gpu-only schedule beside them.
void ProposeHiddenRows(const Findings& findings, int64_t budget, const TakeSchedule& take);
// Of strategies without decodes in the gpu tier: every cpu decode, hidden or not.
void ProposeAllRows(const Findings& findings, int64_t budget, const TakeSchedule& take);
// With neither prefill nor decodes in the gpu tier there is no time of the GPU to hide behind, and nobody
// passes by with whom a cohort could ride: all rows run, in two sub-batches that hide one another or in one;
// cohorts amid a token make their visits.
void ProposeRowsAlone(const Findings& findings, const TakeSchedule& take);

}  // namespace tandem
