// Runs every file of tests/scenarios: state + costs -> plan, as text.

#include <gtest/gtest.h>

#include "plan/plan_printer.h"
#include "policy/strategy.h"
#include "simulate/scenario_file_testing.h"

namespace tandem::testing {
namespace {

TEST(ScenarioTest, EveryScenarioGivesItsPlan) {
  const auto files = ReadScenarioFiles(TANDEM_SOURCE_DIR "/tests/scenarios");
  ASSERT_TRUE(files.ok()) << files.error().message;
  size_t num_scenarios = 0;
  for (const ScenarioFile& file : *files) {
    for (const Scenario& scenario : file.scenarios) {
      auto strategy = CreateStrategy(file.strategy, scenario.has_costs ? &scenario.costs : nullptr);
      ASSERT_TRUE(strategy.ok()) << file.path;
      EXPECT_EQ(PrintPlan((*strategy)->Plan(scenario.state, scenario.capacity)), scenario.expected)
          << file.path << ": " << scenario.name;
    }
    num_scenarios += file.scenarios.size();
  }
  EXPECT_GE(num_scenarios, 20);
}

}  // namespace
}  // namespace tandem::testing
