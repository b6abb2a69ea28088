#include "bench/rate_search.h"

#include <cmath>

#include "base/check.h"

namespace tandem {

RateSearch::RateSearch(double first_rate, double limit_s) : first_rate_(first_rate), limit_s_(limit_s) {
  TANDEM_CHECK(first_rate > 0 && std::isfinite(first_rate) && limit_s > 0, "a search from {} for {} s",
               first_rate, limit_s);
}

std::optional<double> RateSearch::NextRate() const {
  if (trials_.empty()) return first_rate_;
  if (std::ssize(trials_) >= kMaxTrials) return std::nullopt;
  const std::optional<RateTrial> low = within();
  const std::optional<RateTrial> high = beyond();
  if (!low) return high->rate / 2;
  if (!high) return low->rate * 2;
  if (high->rate <= kResolution * low->rate) return std::nullopt;
  return std::sqrt(low->rate * high->rate);
}

void RateSearch::Add(const RateTrial& trial) {
  trials_.push_back(trial);
}

std::optional<RateTrial> RateSearch::beyond() const {
  std::optional<RateTrial> lowest;
  for (const RateTrial& trial : trials_) {
    if (trial.latency_s > limit_s_ && (!lowest || trial.rate < lowest->rate)) lowest = trial;
  }
  return lowest;
}

std::optional<RateTrial> RateSearch::within() const {
  const std::optional<RateTrial> high = beyond();
  std::optional<RateTrial> highest;
  for (const RateTrial& trial : trials_) {
    if (high && trial.rate >= high->rate) continue;
    if (!highest || trial.rate > highest->rate) highest = trial;
  }
  return highest;
}

std::optional<double> RateSearch::highest_rate() const {
  const std::optional<RateTrial> low = within();
  if (!low) return std::nullopt;
  const std::optional<RateTrial> high = beyond();
  if (!high || !std::isfinite(high->latency_s)) return low->rate;
  const double share = (limit_s_ - low->latency_s) / (high->latency_s - low->latency_s);
  return low->rate + share * (high->rate - low->rate);
}

}  // namespace tandem
