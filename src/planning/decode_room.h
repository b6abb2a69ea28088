// Step 2 of NEO's scheduler (section 3.2): room for the KV of all decodes, by swaps between the tiers or,
// where there is no room in either, by preemption.
#pragma once

#include <cstdint>

#include "perf/layer_costs.h"
#include "planning/schedule_state.h"
#include "planning/tier_books.h"

namespace tandem {

// "Swap out requests until GPU memory can hold all new KV cache": the youngest gpu decode goes to the cpu
// tier if that has room (and is usable), else the youngest sequence of the gpu tier is preempted.
void MakeRoomInGpuTier(const ScheduleState& state, TierBooks* books);

// The same for the cpu tier: its youngest sequence is swapped in if the gpu tier has ample room, else
// preempted. In an unusable cpu tier nothing grows, but prompts begun there are preempted: they cannot go on.
void MakeRoomInCpuTier(const ScheduleState& state, TierBooks* books);

struct ReturnRules {
  int64_t min_cpu_sequences = 0;  // stay in the cpu tier
  // Nobody is wanted there: who is there was pushed out, and comes back in order and where a prompt would be
  // let in, behind which an output can grow. Prompts wait until it is back; ample room is a block for each
  // decode or so.
  bool like_prompts = false;
};

// "Or swap in requests if there is ample space on GPU": the cpu decodes that fit, those with the most
// tokens left to generate for each token moved first, then the oldest, while the cpu tier keeps more than
// min_cpu_sequences. Ample means that the decodes of the gpu tier can grow for a while after, so the next
// iterations do not swap the same request out again. The copies hide behind the iteration: in one layer they
// take no longer than the linear operations and attention of the gpu decodes. Nothing is swapped in beside a
// preemption or a swap out.
//
// If all may come back (min_cpu_sequences 0: nobody waits for that room), those amid a token are among them:
// a token takes layers + 1 iterations of a row that rides, one in the gpu tier. Its cohort is dropped, so the
// others in it begin their token again.
void SwapIn(const ScheduleState& state, const LayerCosts& costs, const ReturnRules& rules, TierBooks* books);

}  // namespace tandem
