#include "simulate/scenario_file_testing.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace tandem::testing {
namespace {

using Pairs = std::map<std::string, double>;

// "key value" pairs of the rest of a line. The tiers' names are values too.
Pairs ReadPairs(std::istringstream* line) {
  Pairs pairs;
  std::string key;
  std::string value;
  while (*line >> key >> value) pairs[key] = value == "cpu" ? 1 : value == "gpu" ? 0 : std::stod(value);
  return pairs;
}

// Each field by its name in the file. False: one is unknown.
template <typename T>
bool ReadFields(const Pairs& pairs, const std::map<std::string, T*>& fields) {
  for (const auto& [key, value] : pairs) {
    const auto field = fields.find(key);
    if (field == fields.end()) return false;
    *field->second = static_cast<T>(value);
  }
  return true;
}

bool ReadLimits(Pairs pairs, ScheduleLimits* limits) {
  const auto take = [&pairs](const char* key, double* to) {
    const auto found = pairs.extract(key);
    if (!found.empty()) *to = found.mapped();
  };
  take("iteration_us", &limits->max_iteration_us);
  take("tpot_us", &limits->max_tpot_us);
  return ReadFields<int64_t>(pairs, {{"seqs", &limits->max_num_seqs},
                                     {"rows", &limits->max_num_batched_tokens},
                                     {"reserve", &limits->reserve_blocks},
                                     {"layers", &limits->num_layers},
                                     {"transit", &limits->max_transit_tokens},
                                     {"cohort", &limits->max_cohort_rows},
                                     {"riders", &limits->max_rider_rows},
                                     {"riding_cohorts", &limits->max_riding_cohorts}});
}

bool ReadCosts(const Pairs& pairs, AnalyticCosts* costs) {
  return ReadFields<double>(pairs, {{"linear_us", &costs->linear_us},
                                    {"linear_token_us", &costs->linear_token_us},
                                    {"gpu_kv_ns", &costs->gpu_kv_ns},
                                    {"prefill_ns", &costs->prefill_ns},
                                    {"cpu_us", &costs->cpu_us},
                                    {"cpu_kv_ns", &costs->cpu_kv_ns},
                                    {"exchange_us", &costs->exchange_us},
                                    {"exchange_row_us", &costs->exchange_row_us},
                                    {"swap_ns", &costs->swap_ns},
                                    {"outside_us", &costs->outside_us}});
}

// "ID tokens T ...", or "ID-LAST tokens T ..." for several that are alike.
void ReadSequences(const std::string& queue, std::istringstream* line, Scenario* scenario) {
  ScheduledSequence sequence;
  *line >> sequence.id;
  SequenceId last = sequence.id;
  char dash = 0;
  if (line->peek() == '-') *line >> dash >> last;
  Pairs pairs = ReadPairs(line);
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
                                             .num_blocks = static_cast<int64_t>(pairs["blocks"])};
    scenario->state.running.push_back(sequence);
  }
}

// "ID cursor C rows S@P S@P ...", or "S@P+N ..." for chunks of N + 1 tokens of running prompts, as a plan
// prints a cohort. False: it has no rows.
bool ReadCohort(std::istringstream* line, ScheduleState* state) {
  InFlightCohort cohort;
  std::string word;
  *line >> cohort.cohort >> word >> cohort.cursor >> word;
  SequenceId sequence = 0;
  int64_t position = 0;
  char at = 0;
  while (*line >> sequence >> at >> position) {
    if (line->peek() != '+') {
      cohort.rows.push_back(RowSpan::Decode(sequence, position, Tier::kCpu));
      continue;
    }
    int64_t more = 0;
    *line >> at >> more;
    for (const ScheduledSequence& each : state->running) {
      if (each.id == sequence)
        cohort.rows.push_back(RowSpan::Chunk(sequence, position, more + 1, each.first_logits(), Tier::kCpu));
    }
  }
  const bool ok = word == "rows" && !cohort.rows.empty();
  state->cohorts.push_back(std::move(cohort));
  return ok;
}

// A line of a scenario's state. False: it is not understood.
bool ReadState(const std::string& word, std::istringstream* line, Scenario* scenario) {
  if (word == "block_size") {
    *line >> scenario->capacity.block_size_;
  } else if (word == "gpu_blocks") {
    *line >> scenario->capacity.total_blocks_[0];
  } else if (word == "cpu_blocks") {
    *line >> scenario->capacity.total_blocks_[1];
  } else if (word == "limits") {
    return ReadLimits(ReadPairs(line), &scenario->state.limits);
  } else if (word == "costs") {
    scenario->has_costs = true;
    return ReadCosts(ReadPairs(line), &scenario->costs);
  } else if (word == "prompt_tokens_per_output") {
    *line >> scenario->state.prompt_tokens_per_output;
  } else if (word == "cpu_tier_failed") {
    scenario->state.cpu_tier_usable = false;
  } else if (word == "running" || word == "waiting") {
    ReadSequences(word, line, scenario);
  } else if (word == "in_flight") {
    return ReadCohort(line, &scenario->state);
  } else {
    return word.empty() || word[0] == '#';
  }
  return true;
}

Result<ScenarioFile> ReadScenarioFile(const std::string& path) {
  ScenarioFile file{.path = path};
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
    } else if (word == "---") {
      in_plan = true;
    } else if (!ReadState(word, &line, &scenario)) {
      return MakeError(ErrorCode::kInvalidArgument, "{}: cannot read the line '{}'", path, text);
    }
  }
  if (in_plan) return MakeError(ErrorCode::kInvalidArgument, "{}: the last scenario has no end", path);
  for (Scenario& scenario : file.scenarios) scenario.costs.layers = scenario.state.limits.num_layers;
  return file;
}

}  // namespace

int64_t ScenarioCapacity::free_blocks(Tier tier) const {
  int64_t free = total_blocks(tier);
  for (const auto& [id, holding] : held_) {
    if (holding.tier == tier) free -= holding.num_blocks;
  }
  return free;
}

std::optional<Holding> ScenarioCapacity::holding_of(SequenceId sequence) const {
  const auto found = held_.find(sequence);
  return found == held_.end() ? std::nullopt : std::optional(found->second);
}

Result<std::vector<ScenarioFile>> ReadScenarioFiles(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<ScenarioFile> files;
  for (const std::string& path : paths) {
    TANDEM_ASSIGN_OR_RETURN(ScenarioFile file, ReadScenarioFile(path));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace tandem::testing
