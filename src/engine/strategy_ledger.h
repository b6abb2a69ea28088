// What a strategy goes by (SteadyPromise), what that promised and what it has made: for metrics and the log.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "plan/iteration_plan.h"

namespace tandem {

// Of one of the strategies that are gone by, while it was.
struct StrategyAccount {
  uint64_t num_choices = 0;  // times that it was changed to
  double seconds = 0;        // of iterations
  double promised_tokens = 0;
  uint64_t made_tokens = 0;
};
using StrategyAccounts = std::map<std::string, StrategyAccount>;  // by name

// Engine thread only.
class StrategyLedger {
 public:
  // An iteration has ended: what its plan went by (nothing: it does not count), how long it took, how many
  // tokens were drawn. Logs a line if something else was gone by before: what is promised now, and what
  // became of the promises since the change before.
  void Count(const SteadyPromise& promise, double seconds, uint64_t num_tokens);

  const StrategyAccounts& accounts() const { return accounts_; }
  // That is gone by; empty: no iteration has ended.
  const std::string& current() const { return current_; }

 private:
  StrategyAccounts accounts_;
  std::string current_;
  StrategyAccount since_change_;
};

}  // namespace tandem
