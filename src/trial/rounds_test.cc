// The choice among timed candidates: pure functions of made-up times.
#include "trial/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(TrialRounds, TheDefaultStaysUnlessAnotherIsClearlyFaster) {
  EXPECT_EQ(ChooseFastest({{1.0, 1.0, 1.0}}).chosen, 0U);
  EXPECT_EQ(ChooseFastest({{1.0, 1.0, 1.0}, {0.98, 0.98, 0.98}}).chosen, 0U);
  EXPECT_EQ(ChooseFastest({{1.0, 1.0, 1.0}, {1.2, 1.2, 1.2}}).chosen, 0U);
  const TrialOutcome outcome = ChooseFastest({{1.0, 1.0, 1.0}, {0.95, 0.95, 0.95}, {0.8, 0.8, 0.8}});
  EXPECT_EQ(outcome.chosen, 2U);
  EXPECT_THAT(outcome.speedup, DoubleNear(1.25, 1e-9));
  EXPECT_EQ(ChooseFastest({{1.0, 1.0, 1.0}, {0.8, 0.8, 0.8}}, 1.3).chosen, 0U);
}

// Half of the time is another guest's for some rounds: it slows all candidates of these rounds.
TEST(TrialRounds, RoundsAreComparedWithinThemselves) {
  EXPECT_EQ(ChooseFastest({{1.0, 2.0, 1.0, 2.0, 2.0}, {0.9, 1.8, 0.9, 1.8, 1.8}}).chosen, 1U);
  EXPECT_EQ(ChooseFastest({{1.0, 2.0, 1.0, 2.0, 2.0}, {1.0, 2.0, 1.0, 2.0, 2.0}}).chosen, 0U);
}

TEST(TrialRounds, AFewDisturbedRunsDecideNothing) {
  // The default was disturbed in two of five rounds, the other one never: they are equal.
  EXPECT_EQ(ChooseFastest({{1.0, 9.0, 1.0, 9.0, 1.0}, {1.0, 1.0, 1.0, 1.0, 1.0}}).chosen, 0U);
  // Disturbed in most rounds: the best runs are equal.
  EXPECT_EQ(ChooseFastest({{1.0, 9.0, 9.0, 9.0, 1.0}, {1.0, 1.0, 1.0, 1.0, 1.0}}).chosen, 0U);
  // The faster one was disturbed itself.
  EXPECT_EQ(ChooseFastest({{1.0, 1.0, 1.0, 1.0, 1.0}, {0.8, 9.0, 0.8, 0.8, 9.0}}).chosen, 1U);
}

TEST(TrialRounds, TheBestGoOnBesidesTheDefault) {
  const TrialTimes times = {{1.0}, {3.0}, {0.5}, {2.0}, {0.7}};
  EXPECT_THAT(Finalists(times, 2), ElementsAre(0U, 2U, 4U));
  EXPECT_THAT(Finalists(times, 9), ElementsAre(0U, 2U, 4U, 3U, 1U));
}

TEST(TrialRounds, EveryCandidateRunsInTurnsAndTheFinalistsLongest) {
  const std::vector<double> seconds = {1.0, 0.9, 1.1, 0.7, 1.2};
  std::vector<int> num_runs(seconds.size());
  const auto run = [&](const std::vector<size_t>& candidates) {
    std::vector<double> round;
    for (const size_t candidate : candidates) {
      ++num_runs[candidate];
      round.push_back(seconds[candidate]);
    }
    return round;
  };
  const TrialOutcome outcome = RunTrial(
      seconds.size(), run, {.first = 2, .finalists = 2, .min_last = 4, .max_last = 4, .budget_seconds = 0});
  EXPECT_EQ(outcome.chosen, 3U);
  EXPECT_THAT(num_runs, ElementsAre(7, 6, 2, 6, 2));
}

TEST(TrialRounds, ASingleCandidateIsNotMeasured) {
  const TrialOutcome outcome = RunTrial(1,
                                        [](const std::vector<size_t>&) {
                                          ADD_FAILURE();
                                          return std::vector<double>{1.0};
                                        },
                                        {});
  EXPECT_EQ(outcome.chosen, 0U);
}

}  // namespace
}  // namespace tandem
