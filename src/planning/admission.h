// Stage 3 (NEO 3.2 "Schedule prefilling requests"): who is prefilled, into which tier, and what tokens are
// worth now.
#pragma once

#include <cstdint>
#include <vector>

#include "planning/planning_input.h"
#include "planning/prefill_queue.h"
#include "planning/room.h"
#include "planning/target.h"
#include "planning/transit_pass.h"

namespace tandem {

struct Admission {
  TransitRules transit;
  PrefillQueue prompts;
  // Microseconds of the steady state that a token stands for now.
  double prefilled_token_us = 0;
  double decoded_token_us = 0;
  double wanted_prefill_tokens = 0;  // that the decodes use up, and that bring the tiers up to their targets
};

// Takes blocks of the admitted from *room, and rows of a cohort that enters in transit.
Admission Admit(const PlanningInput& input, const Target& target, Room* room);

}  // namespace tandem
