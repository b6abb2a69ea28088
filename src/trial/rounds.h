// Which of several ways to do the same is faster, on a machine that others disturb.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace tandem {

// Seconds of each candidate in each round, [candidate][round]; all ran once a round, so that what changes in
// time concerns them alike.
using TrialTimes = std::vector<std::vector<double>>;

struct TrialOutcome {
  size_t chosen = 0;
  double speedup = 1;  // over candidate 0, the median of the rounds
};

// Less is within the spread of what neighbours cause: a choice by it would be another one at every machine's
// first start.
constexpr double kClearlyFaster = 1.03;

// Candidate 0, unless another is faster than it more than clearly_faster times both in the median of the
// rounds, each against candidate 0's run of the same round, and in the best run. Of those the one with the
// best median. times: as many rounds of each, at least one.
TrialOutcome ChooseFastest(const TrialTimes& times, double clearly_faster = kClearlyFaster);

// Candidate 0 and the num_others best of the others by the same median, the best first.
std::vector<size_t> Finalists(const TrialTimes& times, size_t num_others);

struct TrialRounds {
  int first = 3;         // of all candidates
  size_t finalists = 3;  // that go on, besides candidate 0
  int min_last = 5;      // of the finalists, whatever they take
  int max_last = 10;     // until the budget is spent
  double budget_seconds = 0.02;
  double clearly_faster = kClearlyFaster;
};

// run: does what each of the candidates stands for once and returns what they took, in seconds.
using RunCandidates = std::function<std::vector<double>(const std::vector<size_t>& candidates)>;
TrialOutcome RunTrial(size_t num_candidates, const RunCandidates& run, const TrialRounds& rounds);

}  // namespace tandem
