// gpu-only: every sequence lives in the gpu tier; one sub-batch mixes chunked prefill with all decodes.
//
// The baseline that every hybrid gain is measured against (NEO section 5 compares with a gpu-only mode that
// cannot mix; this one must). Each iteration:
//
//   decodes (oldest first; the youngest are preempted if blocks run out)
//   | chunks of prompts already begun | chunks of waiting prompts, first come first served, while
//     rows, sequences and blocks last
#pragma once

#include <string_view>

#include "schedule/strategy.h"

namespace tandem {

class GpuOnlyStrategy : public Strategy {
 public:
  std::string_view name() const override { return "gpu-only"; }
  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override;
};

}  // namespace tandem
