// A strategy: queues + free blocks -> iteration plan. Policy only; no memory, no device, no clock.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv/capacity_view.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "schedule/operating_point.h"
#include "schedule/schedule_state.h"

namespace tandem {

// Called from the engine thread, once an iteration or more often: a plan may be made ahead and thrown away,
// so Plan leaves no trace in the strategy. A plan never needs more blocks than capacity says are free once
// its preemptions and moves are done.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  virtual IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) = 0;
};

// name: as --strategy takes it. costs: outlive the strategy, may change between two plans; null for a
// strategy that can do without (those for which StrategyUsesCpuTier is false). Errors: kUnsupported, naming
// what there is.
Result<std::unique_ptr<Strategy>> CreateStrategy(std::string_view name, const LayerCosts* costs);
// Whether StrategyNames has it. Error: kInvalidArgument, naming what there is; param is "strategy".
Status CheckStrategyName(std::string_view name);
// Of all strategies, in the order in which they are to be listed.
std::vector<std::string_view> StrategyNames();
// Whether a strategy wants a cpu tier, and costs. False for unknown names.
bool StrategyUsesCpuTier(std::string_view name);
// Whether its plans may have cohorts that ride.
bool StrategyRides(std::string_view name);
// Requests that the cpu tier holds, about, once the strategy has had this work for a while: those of its
// operating point, or what it admits if they ride. work.gpu_rows: if the gpu tier decodes. 0 for strategies
// that do not use the cpu tier.
int64_t SteadyCpuRows(std::string_view name, SteadyWork work, const LayerCosts& costs);

}  // namespace tandem
