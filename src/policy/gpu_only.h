// gpu-only: every sequence lives in the gpu tier; one sub-batch mixes chunked prefill with all decodes.
//
// The baseline that every hybrid gain is measured against. It mixes, as NEO's gpu-only schedule (section 3.2,
// step 6) and the vLLM that it is compared with (section 5.1) do. Each iteration:
//
//   decodes (oldest first; the youngest are preempted if blocks run out)
//   | chunks of prompts already begun | chunks of waiting prompts, first come first served, while
//     rows, sequences and blocks last
//
// With costs the chunks are dealt out over the iterations, as the stages do it for a machine without a cpu
// tier: prompt tokens ride along where the linear operations read the weights anyway.
#pragma once

#include <string_view>

#include "policy/strategy.h"

namespace tandem {

class GpuOnlyStrategy : public Strategy {
 public:
  // costs may be null: then every iteration prefills as much as fits.
  explicit GpuOnlyStrategy(const LayerCosts* costs = nullptr) : Strategy(costs) {}
  std::string_view name() const override { return "gpu-only"; }
  bool uses_cpu_tier() const override { return false; }
  bool rides() const override { return false; }
  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override;
  int64_t SteadyCpuRows(SteadyWork /*work*/) const override { return 0; }
};

}  // namespace tandem
