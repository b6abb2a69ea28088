// Runs every file of tests/scenarios: state -> plan, as text.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "plan/plan_printer.h"
#include "schedule/strategy.h"

namespace tandem {
namespace {

class ScenarioCapacity : public CapacityView {
 public:
  int64_t block_size() const override { return block_size_; }
  int64_t total_blocks(Tier tier) const override { return tier == Tier::kGpu ? gpu_blocks_ : 0; }
  int64_t free_blocks(Tier tier) const override {
    int64_t free = total_blocks(tier);
    if (tier == Tier::kGpu) {
      for (const auto& [id, blocks] : held_) free -= blocks;
    }
    return free;
  }
  int64_t held_blocks(SequenceId sequence) const override {
    const auto found = held_.find(sequence);
    return found == held_.end() ? 0 : found->second;
  }
  std::optional<Tier> tier_of(SequenceId sequence) const override {
    return held_.contains(sequence) ? std::optional(Tier::kGpu) : std::nullopt;
  }

  int64_t block_size_ = 0;
  int64_t gpu_blocks_ = 0;
  std::map<SequenceId, int64_t> held_;
};

struct Scenario {
  std::string name;
  ScheduleState state;
  ScenarioCapacity capacity;
  std::string expected;
};

struct ScenarioFile {
  std::string strategy;
  std::vector<Scenario> scenarios;
};

// Reads "key value" pairs of the rest of a line.
std::map<std::string, int64_t> ReadPairs(std::istringstream* line) {
  std::map<std::string, int64_t> pairs;
  std::string key;
  int64_t value = 0;
  while (*line >> key >> value) pairs[key] = value;
  return pairs;
}

ScenarioFile ReadScenarios(const std::filesystem::path& path) {
  ScenarioFile file;
  std::ifstream in(path);
  std::string text;
  bool in_plan = false;
  while (std::getline(in, text)) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (in_plan) {
      in_plan = word != "end";
      if (in_plan) file.scenarios.back().expected += text + "\n";
    } else if (word == "strategy") {
      line >> file.strategy;
    } else if (word == "scenario") {
      file.scenarios.emplace_back();
      std::getline(line >> std::ws, file.scenarios.back().name);
    } else if (word == "block_size") {
      line >> file.scenarios.back().capacity.block_size_;
    } else if (word == "gpu_blocks") {
      line >> file.scenarios.back().capacity.gpu_blocks_;
    } else if (word == "limits") {
      auto pairs = ReadPairs(&line);
      file.scenarios.back().state.limits = {.max_num_seqs = pairs["seqs"],
                                            .max_num_batched_tokens = pairs["rows"],
                                            .reserve_blocks = pairs["reserve"]};
    } else if (word == "running" || word == "waiting") {
      Scenario& scenario = file.scenarios.back();
      ScheduledSequence sequence;
      line >> sequence.id;
      auto pairs = ReadPairs(&line);
      sequence.num_tokens = pairs["tokens"];
      sequence.num_computed = pairs["computed"];
      if (word == "running") {
        scenario.capacity.held_[sequence.id] = pairs["blocks"];
        scenario.state.running.push_back(sequence);
      } else {
        scenario.state.waiting.push_back(sequence);
      }
    } else if (word == "---") {
      in_plan = true;
    } else if (!word.empty()) {
      ADD_FAILURE() << path << ": unknown line '" << text << "'";
    }
  }
  EXPECT_FALSE(in_plan) << path << ": the last scenario has no end";
  return file;
}

TEST(ScenarioTest, EveryScenarioGivesItsPlan) {
  int num_scenarios = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/tests/scenarios")) {
    if (entry.path().extension() != ".txt") continue;
    const ScenarioFile file = ReadScenarios(entry.path());
    auto strategy = CreateStrategy(file.strategy);
    ASSERT_TRUE(strategy.ok()) << entry.path();
    for (const Scenario& scenario : file.scenarios) {
      EXPECT_EQ(PrintPlan((*strategy)->Plan(scenario.state, scenario.capacity)), scenario.expected)
          << entry.path() << ": " << scenario.name;
      ++num_scenarios;
    }
  }
  EXPECT_GE(num_scenarios, 20);
}

}  // namespace
}  // namespace tandem
