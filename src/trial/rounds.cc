#include "trial/rounds.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/check.h"

namespace tandem {
namespace {

// A choice within the spread of what neighbours cause would be another one at every machine's first start.
constexpr double kClearlyFaster = 1.03;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double MedianSpeedup(const TrialTimes& times, size_t candidate) {
  std::vector<double> speedups;
  for (size_t round = 0; round < times[candidate].size(); ++round)
    speedups.push_back(times[0][round] / times[candidate][round]);
  return Median(std::move(speedups));
}

double BestRunSpeedup(const TrialTimes& times, size_t candidate) {
  return *std::ranges::min_element(times[0]) / *std::ranges::min_element(times[candidate]);
}

}  // namespace

TrialOutcome ChooseFastest(const TrialTimes& times) {
  TANDEM_CHECK(!times.empty() && !times[0].empty(), "trial: nothing was measured");
  TrialOutcome outcome;
  for (size_t i = 1; i < times.size(); ++i) {
    const double speedup = MedianSpeedup(times, i);
    if (speedup <= kClearlyFaster || BestRunSpeedup(times, i) <= kClearlyFaster) continue;
    if (speedup > outcome.speedup) outcome = {.chosen = i, .speedup = speedup};
  }
  return outcome;
}

std::vector<size_t> Finalists(const TrialTimes& times, size_t num_others) {
  std::vector<size_t> candidates(times.size());
  std::iota(candidates.begin(), candidates.end(), 0);
  std::stable_sort(candidates.begin() + 1, candidates.end(),
                   [&](size_t a, size_t b) { return MedianSpeedup(times, a) > MedianSpeedup(times, b); });
  candidates.resize(std::min(candidates.size(), 1 + num_others));
  return candidates;
}

TrialOutcome RunTrial(size_t num_candidates, const std::function<double(size_t candidate)>& run,
                      const TrialRounds& rounds) {
  const auto begin = std::chrono::steady_clock::now();
  const auto in_budget = [&] {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return passed.count() < rounds.budget_seconds;
  };
  TANDEM_CHECK(num_candidates > 0, "trial: no candidates");
  if (num_candidates == 1) return {};
  run(0);  // touches what the others find
  TrialTimes all(num_candidates);
  for (int round = 0; round < rounds.first; ++round) {
    for (size_t i = 0; i < num_candidates; ++i) all[i].push_back(run(i));
  }
  const std::vector<size_t> finalists = Finalists(all, rounds.finalists);
  TrialTimes last;
  for (const size_t candidate : finalists) last.push_back(all[candidate]);
  for (int round = 0; round < rounds.min_last || (round < rounds.max_last && in_budget()); ++round) {
    for (size_t i = 0; i < finalists.size(); ++i) last[i].push_back(run(finalists[i]));
  }
  TrialOutcome outcome = ChooseFastest(last);
  outcome.chosen = finalists[outcome.chosen];
  return outcome;
}

}  // namespace tandem
