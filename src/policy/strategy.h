// A strategy: queues + free blocks -> iteration plan. Policy only; no memory, no device, no clock.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "kv/capacity_view.h"
#include "perf/layer_costs.h"
#include "plan/iteration_plan.h"
#include "planning/operating_point.h"
#include "planning/schedule_state.h"

namespace tandem {

// Called from the engine thread, once an iteration or more often: a plan may be made ahead and thrown away,
// so Plan leaves no trace in the strategy. A plan never needs more blocks than capacity says are free once
// its preemptions and moves are done.
class Strategy {
 public:
  // costs: outlive the strategy, may change between two plans. Null where nothing is planned, and for
  // strategies that can do without: those that do not use the cpu tier.
  explicit Strategy(const LayerCosts* costs) : costs_(costs) {}
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  // Wants a cpu tier, and costs.
  virtual bool uses_cpu_tier() const = 0;
  // Its plans may have cohorts that ride.
  virtual bool rides() const = 0;
  virtual IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) = 0;
  // Requests that the cpu tier holds, about, once the strategy has had this work for a while: those of its
  // operating point, or what it admits if they ride. work.gpu_rows: if the gpu tier decodes. 0 for strategies
  // that do not use the cpu tier.
  virtual int64_t SteadyCpuRows(SteadyWork work) const = 0;

 protected:
  bool has_costs() const { return costs_ != nullptr; }
  const LayerCosts& costs() const {
    TANDEM_CHECK(has_costs(), "strategy {} plans without costs", name());
    return *costs_;
  }

 private:
  const LayerCosts* costs_;
};

// name: as --strategy takes it. costs: as Strategy has them. Errors: kUnsupported, naming what there is.
Result<std::unique_ptr<Strategy>> CreateStrategy(std::string_view name, const LayerCosts* costs);
// Whether StrategyNames has it. Error: kInvalidArgument, naming what there is; param is "strategy".
Status CheckStrategyName(std::string_view name);
// Of all strategies, in the order in which they are to be listed.
std::vector<std::string_view> StrategyNames();

}  // namespace tandem
