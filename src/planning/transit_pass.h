// Chunks of long prompts that live in the cpu tier, and how they pass the layers: in the main sub-batch, all
// of them in one iteration, or as a cohort in transit, some in each.
//
//   main sub-batch   |          decodes            |          decodes            |
//   in transit                   layer 3 | layer 4 |            layer 5 | layer 6 |
//   copies in        | 4 | 5              | 6      | 7
//
// Each layer of a chunk brings in all that was computed of its prompt before, however short the chunk is.
// Where that takes longer, for all layers, than an iteration may, the chunk takes several iterations.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "planning/planning_input.h"
#include "planning/room.h"
#include "planning/target.h"

namespace tandem {

struct TransitRules {
  const InFlightCohort* in_flight = nullptr;  // in transit already: nobody enters beside it
  // Of a cohort that enters.
  int64_t max_rows = std::numeric_limits<int64_t>::max();
  double beside_us = 0;  // what runs beside a cohort in transit takes, about
  // An iteration with chunks in transit is not to take longer, if they can pass in several.
  double limit_us = std::numeric_limits<double>::infinity();

  // Whether a chunk behind `start` tokens is for a cohort in transit.
  bool TakesSeveralIterations(int64_t start, const LayerCosts& costs) const {
    return static_cast<double>(costs.num_layers()) * costs.SwapUs(start) > limit_us;
  }
};

TransitRules TransitRulesOf(const PlanningInput& input, const Target& target, const Room& room);

// The most tokens, most_tokens at most and one at least, that a span behind `start` tokens may have in a
// cohort that enters with `others`: one layer of them all is to take no longer than what is left of the
// limit, or than its copies, which are as long however few the tokens are. 0: there is no time for another
// span.
int64_t TokensInTransit(const TransitRules& rules, const LayerCosts& costs,
                        const std::vector<RowSpan>& others, int64_t start, int64_t most_tokens);

// The same for a chunk that passes all layers in one iteration.
int64_t TokensInOneIteration(const TransitRules& rules, const LayerCosts& costs, int64_t start,
                             int64_t most_tokens);

// The most tokens of a chunk in the main sub-batch that add nothing to the copies of what is before them,
// which are as long however few they are; what runs beside it reads the weights anyway.
int64_t TokensHiddenByCopies(const TransitRules& rules, const LayerCosts& costs, int64_t start,
                             int64_t most_tokens);

// The layers that a cohort in transit, at `cursor`, passes in an iteration that takes others_us without it:
// as many as keep to the limit, one at least; spread evenly, so that copies hide behind the others.
std::vector<Visit> VisitsInTransit(const TransitRules& rules, const LayerCosts& costs,
                                   const std::vector<RowSpan>& rows, int64_t cursor, double others_us);

}  // namespace tandem
