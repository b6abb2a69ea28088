// Runs every file of tests/scenarios: state + costs -> plan, as text.

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "perf/analytic_costs.h"
#include "plan/plan_printer.h"
#include "policy/strategy.h"

namespace tandem {
namespace {

class ScenarioCapacity : public CapacityView {
 public:
  struct Holding {
    Tier tier = Tier::kGpu;
    int64_t blocks = 0;
  };
  int64_t block_size() const override { return block_size_; }
  int64_t total_blocks(Tier tier) const override { return total_blocks_[static_cast<size_t>(tier)]; }
  int64_t free_blocks(Tier tier) const override {
    int64_t free = total_blocks(tier);
    for (const auto& [id, holding] : held_) {
      if (holding.tier == tier) free -= holding.blocks;
    }
    return free;
  }
  int64_t held_blocks(SequenceId sequence) const override {
    const auto found = held_.find(sequence);
    return found == held_.end() ? 0 : found->second.blocks;
  }
  std::optional<Tier> tier_of(SequenceId sequence) const override {
    const auto found = held_.find(sequence);
    return found == held_.end() ? std::nullopt : std::optional(found->second.tier);
  }

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
  std::string expected;
};

struct ScenarioFile {
  std::string strategy;
  Scenario common;  // what stands before the first scenario holds for all
  std::vector<Scenario> scenarios;
};

// Reads "key value" pairs of the rest of a line. The tiers' names are values too.
std::map<std::string, double> ReadPairs(std::istringstream* line) {
  std::map<std::string, double> pairs;
  std::string key;
  std::string value;
  while (*line >> key >> value) pairs[key] = value == "cpu" ? 1 : value == "gpu" ? 0 : std::stod(value);
  return pairs;
}

void ReadLimits(const std::map<std::string, double>& pairs, ScheduleLimits* limits) {
  for (const auto& [key, value] : pairs) {
    const auto number = static_cast<int64_t>(value);
    if (key == "seqs") {
      limits->max_num_seqs = number;
    } else if (key == "rows") {
      limits->max_num_batched_tokens = number;
    } else if (key == "reserve") {
      limits->reserve_blocks = number;
    } else if (key == "layers") {
      limits->num_layers = number;
    } else if (key == "transit") {
      limits->max_transit_tokens = number;
    } else if (key == "cohort") {
      limits->max_cohort_rows = number;
    } else if (key == "riders") {
      limits->max_rider_rows = number;
    } else if (key == "riding_cohorts") {
      limits->max_riding_cohorts = number;
    } else if (key == "iteration_us") {
      limits->max_iteration_us = value;
    } else if (key == "tpot_us") {
      limits->max_tpot_us = value;
    } else {
      ADD_FAILURE() << "unknown limit " << key;
    }
  }
}

void ReadCosts(const std::map<std::string, double>& pairs, AnalyticCosts* costs) {
  const std::map<std::string, double*> fields = {
      {"linear_us", &costs->linear_us},     {"linear_token_us", &costs->linear_token_us},
      {"gpu_kv_ns", &costs->gpu_kv_ns},     {"prefill_ns", &costs->prefill_ns},
      {"cpu_us", &costs->cpu_us},           {"cpu_kv_ns", &costs->cpu_kv_ns},
      {"exchange_us", &costs->exchange_us}, {"exchange_row_us", &costs->exchange_row_us},
      {"swap_ns", &costs->swap_ns},         {"outside_us", &costs->outside_us}};
  for (const auto& [key, value] : pairs) {
    const auto field = fields.find(key);
    if (field == fields.end()) {
      ADD_FAILURE() << "unknown cost " << key;
      continue;
    }
    *field->second = value;
  }
}

// "ID tokens T ...", or "ID-LAST tokens T ..." for several that are alike.
void ReadSequences(const std::string& queue, std::istringstream* line, Scenario* scenario) {
  ScheduledSequence sequence;
  *line >> sequence.id;
  SequenceId last = sequence.id;
  char dash = 0;
  if (line->peek() == '-') *line >> dash >> last;
  auto pairs = ReadPairs(line);
  sequence.num_tokens = static_cast<int64_t>(pairs["tokens"]);
  sequence.num_computed = static_cast<int64_t>(pairs["computed"]);
  sequence.flexible = pairs["flexible"] != 0;
  sequence.final_tokens = static_cast<int64_t>(pairs["final"]);
  for (; sequence.id <= last; ++sequence.id) {
    if (queue == "waiting") {
      scenario->state.waiting.push_back(sequence);
      continue;
    }
    scenario->capacity.held_[sequence.id] = {.tier = pairs["tier"] == 0 ? Tier::kGpu : Tier::kCpu,
                                             .blocks = static_cast<int64_t>(pairs["blocks"])};
    scenario->state.running.push_back(sequence);
  }
}

// "ID cursor C rows S@P S@P ...", as a plan prints a cohort.
InFlightCohort ReadCohort(std::istringstream* line) {
  InFlightCohort cohort;
  std::string word;
  *line >> cohort.cohort >> word >> cohort.cursor >> word;
  SequenceId sequence = 0;
  int64_t position = 0;
  char at = 0;
  while (*line >> sequence >> at >> position)
    cohort.rows.push_back(RowSpan::Decode(sequence, position, Tier::kCpu));
  EXPECT_EQ(word, "rows") << "cohort " << cohort.cohort;
  EXPECT_FALSE(cohort.rows.empty()) << "cohort " << cohort.cohort;
  return cohort;
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
    Scenario& scenario = file.scenarios.empty() ? file.common : file.scenarios.back();
    if (in_plan) {
      in_plan = word != "end";
      if (in_plan) scenario.expected += text + "\n";
    } else if (word == "strategy") {
      line >> file.strategy;
    } else if (word == "scenario") {
      file.scenarios.push_back(file.common);
      std::getline(line >> std::ws, file.scenarios.back().name);
    } else if (word == "block_size") {
      line >> scenario.capacity.block_size_;
    } else if (word == "gpu_blocks") {
      line >> scenario.capacity.total_blocks_[0];
    } else if (word == "cpu_blocks") {
      line >> scenario.capacity.total_blocks_[1];
    } else if (word == "limits") {
      ReadLimits(ReadPairs(&line), &scenario.state.limits);
    } else if (word == "costs") {
      scenario.has_costs = true;
      ReadCosts(ReadPairs(&line), &scenario.costs);
    } else if (word == "prompt_tokens_per_output") {
      line >> scenario.state.prompt_tokens_per_output;
    } else if (word == "cpu_tier_failed") {
      scenario.state.cpu_tier_usable = false;
    } else if (word == "running" || word == "waiting") {
      ReadSequences(word, &line, &scenario);
    } else if (word == "in_flight") {
      scenario.state.cohorts.push_back(ReadCohort(&line));
    } else if (word == "---") {
      in_plan = true;
    } else if (!word.empty() && word[0] != '#') {
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
    for (Scenario scenario : file.scenarios) {
      scenario.costs.layers = scenario.state.limits.num_layers;
      auto strategy = CreateStrategy(file.strategy, scenario.has_costs ? &scenario.costs : nullptr);
      ASSERT_TRUE(strategy.ok()) << entry.path();
      EXPECT_EQ(PrintPlan((*strategy)->Plan(scenario.state, scenario.capacity)), scenario.expected)
          << entry.path() << ": " << scenario.name;
      ++num_scenarios;
    }
  }
  EXPECT_GE(num_scenarios, 20);
}

}  // namespace
}  // namespace tandem
