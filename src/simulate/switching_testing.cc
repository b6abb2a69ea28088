#include "simulate/switching_testing.h"

#include <array>
#include <cstdint>

#include "base/check.h"

namespace tandem {
namespace {

constexpr std::array kAmong = {"async",        "asymmetric", "async",          "auto",
                               "full-offload", "symmetric",  "simple-offload", "apex"};
// Tokens from one change to the next.
constexpr uint64_t kStay = 12;

uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

SwitchingStrategy::SwitchingStrategy(const LayerCosts* costs) : Strategy(costs) {
  for (const char* name : kAmong) {
    auto strategy = CreateStrategy(name, costs);
    TANDEM_CHECK(strategy.ok(), "{}", strategy.error().message);
    strategies_.push_back(std::move(*strategy));
  }
}

IterationPlan SwitchingStrategy::Plan(const ScheduleState& state, const CapacityView& capacity) {
  uint64_t num_tokens = 0;
  for (const ScheduledSequence& each : state.running) num_tokens += static_cast<uint64_t>(each.num_computed);
  // Cohorts on their way count as well: no strategy stays because the others wait for it.
  for (const InFlightCohort& cohort : state.cohorts) num_tokens += static_cast<uint64_t>(cohort.cursor);
  return strategies_[Mixed(num_tokens / kStay) % strategies_.size()]->Plan(state, capacity);
}

namespace testing {

Result<std::unique_ptr<Strategy>> CreateAnyStrategy(std::string_view name, const LayerCosts* costs) {
  if (name == "switching") return std::unique_ptr<Strategy>(std::make_unique<SwitchingStrategy>(costs));
  return CreateStrategy(name, costs);
}

}  // namespace testing
}  // namespace tandem
