// async: APEX's asynchronous overlap (section 3.3, Figure 5), with several cohorts staggered over the layers.
//
// The rows of the cpu tier ride: they join the main sub-batch when it passes the layer that they are at, so
// the weights are read once, and their attention of a layer has a whole iteration:
//
//   GPU   | main + cohort a | main + cohort b | main ...        | main + cohort a | main + cohort b | ...
//   CPU   | attention b     | attention c ... | attention a     | attention b     | ...
//           layer 0           layer 1           layer 2 ...       layer 0           layer 1
//
// The price: a token of such a row takes (layers + 1) iterations. Sequences for which that is too long
// (ScheduleLimits::max_tpot_us) decode as in asymmetric, as far as their attention hides.
#pragma once

#include "policy/staged_strategy.h"

namespace tandem {

class AsyncStrategy : public StagedStrategy {
 public:
  explicit AsyncStrategy(const LayerCosts* costs)
      : StagedStrategy({.name = "async", .overlap = OverlapChoice::kAsynchronous}, costs) {}
};

}  // namespace tandem
