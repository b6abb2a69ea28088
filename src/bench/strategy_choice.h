// A strategy as a comparison names it: "async", or "async:async-cohorts=1" with options of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem {

struct StrategyChoice {
  std::string text;  // as it was asked for
  std::string name;
  int64_t async_cohorts = 0;  // as in EngineOptions
};

// text: names separated by commas, options of one strategy behind colons. async_cohorts: of those that do not
// give it. Errors: kInvalidArgument, param "strategies".
Result<std::vector<StrategyChoice>> ParseStrategyChoices(const std::string& text, int64_t async_cohorts);

// With which strategy an engine is to be created that can go on with every one of these: room for riders and
// a cpu tier if one of them needs them.
std::string StrategyForAll(const std::vector<StrategyChoice>& choices);

}  // namespace tandem
