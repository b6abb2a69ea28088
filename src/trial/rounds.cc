#include "trial/rounds.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

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

void AddRound(const std::vector<double>& seconds, TrialTimes* times) {
  for (size_t i = 0; i < seconds.size(); ++i) (*times)[i].push_back(seconds[i]);
}

}  // namespace

TrialOutcome ChooseFastest(const TrialTimes& times, double clearly_faster) {
  TANDEM_CHECK(!times.empty() && !times[0].empty(), "trial: nothing was measured");
  TrialOutcome outcome;
  for (size_t i = 1; i < times.size(); ++i) {
    const double speedup = MedianSpeedup(times, i);
    if (speedup <= clearly_faster || BestRunSpeedup(times, i) <= clearly_faster) continue;
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

TrialOutcome RunTrial(size_t num_candidates, const RunCandidates& run, const TrialRounds& rounds) {
  const auto begin = std::chrono::steady_clock::now();
  const auto in_budget = [&] {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return passed.count() < rounds.budget_seconds;
  };
  TANDEM_CHECK(num_candidates > 0, "trial: no candidates");
  if (num_candidates == 1) return {};
  std::vector<size_t> candidates(num_candidates);
  std::iota(candidates.begin(), candidates.end(), 0);
  run({0});  // touches what the others find
  TrialTimes all(num_candidates);
  for (int round = 0; round < rounds.first; ++round) AddRound(run(candidates), &all);
  const std::vector<size_t> finalists = Finalists(all, rounds.finalists);
  TrialTimes last;
  for (const size_t candidate : finalists) last.push_back(all[candidate]);
  for (int round = 0; round < rounds.min_last || (round < rounds.max_last && in_budget()); ++round)
    AddRound(run(finalists), &last);
  TrialOutcome outcome = ChooseFastest(last, rounds.clearly_faster);
  outcome.chosen = finalists[outcome.chosen];
  return outcome;
}

}  // namespace tandem
