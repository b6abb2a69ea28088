// auto: the overlap with the best predicted throughput, iteration by iteration.
//
//   few cpu decodes, or a tight --max-tpot-ms     asymmetric: each decodes in every iteration, as far as it
//                                                 hides; the weights are read twice
//   many cpu decodes                              async: each makes one visit an iteration; weights read once
//   none that the CPU could serve                 gpu-only
//   few in the gpu tier, many waiting             full-offload, if its steady state promises more
//
// Both overlaps are compared in the steady state that the work tends to (operating_point.h), with the
// requests that are there now: asymmetric while the cpu tier fills, async once it holds enough, asymmetric
// again while it drains. What cohorts have done of their tokens is kept over a change between the two. Within
// an overlap the schedule of the iteration is chosen by the work that it does a microsecond, gpu-only among
// them.
#pragma once

#include "policy/staged_strategy.h"

namespace tandem {

class AutoStrategy : public StagedStrategy {
 public:
  explicit AutoStrategy(const LayerCosts* costs)
      : StagedStrategy({.name = "auto", .overlap = OverlapChoice::kBetter}, costs) {}
};

}  // namespace tandem
