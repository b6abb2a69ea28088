#include "bench/strategy_choice.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/param_error.h"
#include "policy/strategy.h"

namespace tandem {
namespace {

constexpr std::string_view kCohortsOption = "async-cohorts=";

Error BadChoice(const std::string& text, std::string_view why) {
  return MakeParamError(ErrorCode::kInvalidArgument, "strategies", "'{}': {}", text, why);
}

Result<StrategyChoice> ParseChoice(const std::string& text, int64_t async_cohorts) {
  StrategyChoice choice{.text = text, .name = text.substr(0, text.find(':')), .async_cohorts = async_cohorts};
  if (const Status known = CheckStrategyName(choice.name); !known.ok())
    return BadChoice(text, known.error().message);
  std::string_view options = std::string_view(text).substr(choice.name.size());
  while (!options.empty()) {
    options.remove_prefix(1);  // the colon
    const std::string_view option = options.substr(0, options.find(':'));
    options.remove_prefix(option.size());
    if (!option.starts_with(kCohortsOption)) return BadChoice(text, "the only option is async-cohorts=N");
    const std::string_view value = option.substr(kCohortsOption.size());
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), choice.async_cohorts);
    if (error != std::errc() || end != value.data() + value.size() || choice.async_cohorts < 0)
      return BadChoice(text, "async-cohorts is a number of cohorts");
  }
  return choice;
}

}  // namespace

Result<std::vector<StrategyChoice>> ParseStrategyChoices(const std::string& text, int64_t async_cohorts) {
  std::vector<StrategyChoice> choices;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    TANDEM_ASSIGN_OR_RETURN(StrategyChoice choice, ParseChoice(word, async_cohorts));
    const auto is_same = [&choice](const StrategyChoice& other) { return other.text == choice.text; };
    if (std::any_of(choices.begin(), choices.end(), is_same)) return BadChoice(word, "given twice");
    choices.push_back(std::move(choice));
  }
  if (choices.empty()) return BadChoice(text, "there is no strategy in it");
  return choices;
}

std::string StrategyForAll(const std::vector<StrategyChoice>& choices) {
  TANDEM_CHECK(!choices.empty(), "an engine for no strategy");
  const StrategyChoice* best = &choices.front();
  for (const StrategyChoice& choice : choices) {
    // auto alone may do without a cpu tier: another one that rides makes it clear that there is to be one.
    const auto rank = [](const StrategyChoice& each) {
      const auto strategy = CreateStrategy(each.name, nullptr);
      if (!strategy.ok()) return 0;
      if ((*strategy)->rides()) return each.name == "auto" ? 2 : 3;
      return (*strategy)->uses_cpu_tier() ? 1 : 0;
    };
    if (rank(choice) > rank(*best)) best = &choice;
  }
  return best->name;
}

}  // namespace tandem
