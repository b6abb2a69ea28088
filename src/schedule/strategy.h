// A strategy: queues + free blocks -> iteration plan. Policy only; no memory, no device, no clock.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "kv/capacity_view.h"
#include "plan/iteration_plan.h"
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

// name: as --strategy takes it. Errors: kUnsupported, naming what there is.
Result<std::unique_ptr<Strategy>> CreateStrategy(std::string_view name);

}  // namespace tandem
