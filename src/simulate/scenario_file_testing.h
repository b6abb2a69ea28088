// Reads the files of tests/scenarios: their form is in the README there.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kv/capacity_view.h"
#include "perf/analytic_costs.h"
#include "planning/schedule_state.h"

namespace tandem::testing {

class ScenarioCapacity : public CapacityView {
 public:
  int64_t block_size() const override { return block_size_; }
  int64_t total_blocks(Tier tier) const override { return total_blocks_[static_cast<size_t>(tier)]; }
  int64_t free_blocks(Tier tier) const override;
  std::optional<Holding> holding_of(SequenceId sequence) const override;

  int64_t block_size_ = 0;
  std::array<int64_t, kNumTiers> total_blocks_ = {};
  std::map<SequenceId, Holding> held_;
};

struct Scenario {
  bool has_costs = false;
  std::string name;
  ScheduleState state;
  ScenarioCapacity capacity;
  AnalyticCosts costs;
  std::string expected;  // as PrintPlan has it
};

struct ScenarioFile {
  std::string path;
  std::string strategy;
  Scenario common;  // what stands before the first scenario holds for all
  std::vector<Scenario> scenarios;
};

// Every *.txt of a folder, by name. Errors: kInvalidArgument, naming file and line.
Result<std::vector<ScenarioFile>> ReadScenarioFiles(const std::string& folder);

}  // namespace tandem::testing
