// Stage 2 (NEO 3.2 "Schedule GPU decoding requests"): room for the blocks of all decodes, and which rows the
// decodes are.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/iteration_load.h"
#include "planning/cpu_filling.h"
#include "planning/planning_input.h"
#include "planning/riders.h"
#include "planning/target.h"
#include "planning/tier_books.h"

namespace tandem {

struct Room {
  TierBooks books;  // with the swaps and preemptions that make room
  // More sequences in the cpu tier than the CPU can make use of, with some slack against swapping back and
  // forth; and whether any of them can leave it.
  bool cpu_tier_overloaded = false;
  bool overload_can_leave = false;
  std::vector<RowSpan> gpu_rows;
  IterationLoad gpu_load;                      // of gpu_rows
  const InFlightCohort* in_transit = nullptr;  // chunks that are amid the layers; null: none
  int64_t max_rows = 0;                        // of the iteration, beside those
  int64_t rows_left = 0;                       // of them, beside gpu_rows
  CpuRows cpu_rows;                            // that do not ride
  CpuRows free_cpu_rows;                       // all that are not amid a token
  Riders riders;                               // amid a token and, where rows ride, a cohort that enters
};

Room MakeRoom(const PlanningInput& input, const Target& target, TierBooks books);

}  // namespace tandem
