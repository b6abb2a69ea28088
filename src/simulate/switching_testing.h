// switching: another strategy every few iterations, at random. Of no use to anybody who serves: it shows that
// what one strategy has begun the next goes on with, cohorts amid a token among it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "policy/strategy.h"

namespace tandem {

class SwitchingStrategy : public Strategy {
 public:
  explicit SwitchingStrategy(const LayerCosts* costs);
  std::string_view name() const override { return "switching"; }
  bool uses_cpu_tier() const override { return true; }
  bool rides() const override { return true; }
  int64_t SteadyCpuRows(SteadyWork work) const override { return strategies_.front()->SteadyCpuRows(work); }
  // By the one of the strategies that the state's numbers of tokens point to: the same state, the same plan.
  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override;

 private:
  std::vector<std::unique_ptr<Strategy>> strategies_;
};

namespace testing {

// CreateStrategy, and "switching".
Result<std::unique_ptr<Strategy>> CreateAnyStrategy(std::string_view name, const LayerCosts* costs);

}  // namespace testing
}  // namespace tandem
