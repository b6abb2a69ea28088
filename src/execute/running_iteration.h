// What an iteration keeps between its start and its end.
#pragma once

#include <cstddef>
#include <vector>

#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "execute/cohort.h"
#include "execute/iteration_stamps.h"
#include "execute/logits_stage.h"
#include "execute/main_rows.h"
#include "plan/iteration_input.h"

namespace tandem {

// A cohort of the plan that makes visits with products of its own.
struct OwnVisits {
  size_t step = 0;           // of the plan's cohorts
  Cohort* cohort = nullptr;  // null: that in transit
  size_t num_made = 0;       // of the step's visits
  LogitsWork logits;         // at the last layer
};

struct RunningIteration {
  IterationInput input;
  MainRows main;
  std::vector<OwnVisits> visits;  // in the order of the plan
  CpuAttentionStats cpu_attention_before;
  bool may_be_followed = false;  // Executor::MayRunAhead
  Event* end = nullptr;          // recorded behind all of it
  StampedTime time;
};

}  // namespace tandem
