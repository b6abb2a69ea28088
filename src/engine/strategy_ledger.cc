#include "engine/strategy_ledger.h"

#include "base/log.h"

namespace tandem {
namespace {

double TokensPerSecond(double num_tokens, const StrategyAccount& account) {
  return account.seconds > 0 ? num_tokens / account.seconds : 0;
}

std::string PromiseText(double tokens_per_s) {
  return tokens_per_s > 0 ? fmt::format("promises {:.0f} tokens/s", tokens_per_s) : "promises nothing";
}

}  // namespace

void StrategyLedger::Count(const SteadyPromise& promise, double seconds, uint64_t num_tokens) {
  if (promise.strategy.empty()) return;
  if (promise.strategy != current_) {
    if (!current_.empty()) {
      LogInfo("strategy {}: {}; {} promised {:.0f} and made {:.0f} in {:.1f} s", promise.strategy,
              PromiseText(promise.tokens_per_s), current_,
              TokensPerSecond(since_change_.promised_tokens, since_change_),
              TokensPerSecond(static_cast<double>(since_change_.made_tokens), since_change_),
              since_change_.seconds);
    } else if (promise.tokens_per_s > 0) {
      LogInfo("strategy {}: {}", promise.strategy, PromiseText(promise.tokens_per_s));
    }
    current_ = promise.strategy;
    since_change_ = {};
    ++accounts_[current_].num_choices;
  }
  for (StrategyAccount* account : {&since_change_, &accounts_[current_]}) {
    account->seconds += seconds;
    account->promised_tokens += seconds * promise.tokens_per_s;
    account->made_tokens += num_tokens;
  }
}

}  // namespace tandem
