// A request longer than the gpu tier beside short ones, played with predicted times: how long the streams of
// the short ones stand still, and how long the long one takes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "perf/analytic_costs.h"
#include "planning/planner_tuning.h"
#include "policy/asymmetric.h"
#include "policy/async.h"
#include "policy/auto.h"
#include "policy/full_offload.h"
#include "simulate/measured_costs_testing.h"
#include "simulate/schedule_simulation.h"

namespace tandem {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kGpuTokens = testing::kMeasuredGpuTokens;
constexpr int64_t kCpuTokens = testing::kMeasuredCpuTokens;
constexpr int64_t kContext = testing::kMeasuredMaxContext;
constexpr int64_t kLongOutput = 100;
constexpr SequenceId kLong = 1;
constexpr int kNumStreams = 8;

// Tokens of the short requests, and when each had the last one.
class Gaps {
 public:
  void Submit(SequenceId id, int64_t num_tokens, double now_ms) { last_[id] = {num_tokens, now_ms}; }
  void Look(const ScheduleState& state, double now_ms) {
    for (const ScheduledSequence& each : state.running) {
      if (each.id == kLong) continue;
      Last& last = last_.at(each.id);
      if (each.num_tokens == last.num_tokens) continue;
      double& longest = last.began ? longest_ms_ : longest_wait_ms_;
      longest = std::max(longest, now_ms - last.ms);
      last = {each.num_tokens, now_ms, true};
    }
  }
  double longest_ms() const { return longest_ms_; }
  double longest_wait_ms() const { return longest_wait_ms_; }

 private:
  struct Last {
    int64_t num_tokens = 0;
    double ms = 0;
    bool began = false;
  };
  std::unordered_map<SequenceId, Last> last_;
  double longest_ms_ = 0;
  double longest_wait_ms_ = 0;
};

struct Played {
  double longest_gap_ms = 0;             // of the short ones
  double longest_gap_in_prefill_ms = 0;  // the same before the first token of the long one
  double longest_wait_s = 0;             // of a short one for its first token
  double first_token_s = 0;              // of the long one
  double token_ms = 0;                   // of the long one, mean
  int64_t num_short_finished = 0;
  double seconds = 0;  // until the long one ended
  SimulationCounts counts;
};

// Eight short streams all the time, one following the other.
Played Play(StagedStrategy* strategy, const LayerCosts& costs, std::string_view what) {
  const ScheduleLimits limits{.max_num_seqs = 256,
                              .max_num_batched_tokens = 2048,
                              .reserve_blocks = 5,
                              .num_layers = costs.num_layers(),
                              .max_transit_tokens = kContext,
                              .max_cohort_rows = 256,
                              .max_rider_rows = strategy->rides() ? 256 : 0};
  ScheduleSimulation simulation(SimulatedBooks(kBlock, kGpuTokens / kBlock, kCpuTokens / kBlock), limits,
                                &costs);
  Played played;
  Gaps gaps;
  SequenceId id = kLong;
  int64_t num_short = 0;
  simulation.Submit(kLong, kContext - kLongOutput, kLongOutput);
  const auto long_one = [&]() -> const ScheduledSequence* {
    for (const ScheduledSequence& each : simulation.state().running) {
      if (each.id == kLong) return &each;
    }
    return nullptr;
  };
  bool has_begun = false;
  while (!has_begun || long_one() != nullptr) {
    for (; num_short - simulation.num_finished() < kNumStreams; ++num_short) {
      ++id;
      const auto prompt_len = 300 + static_cast<int64_t>(id * 97 % 400);
      simulation.Submit(id, prompt_len, 100 + static_cast<int64_t>(id * 61 % 200));
      gaps.Submit(id, prompt_len, simulation.counts().us / 1e3);
    }
    const Status status = simulation.Step(strategy);
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (!status.ok()) return {};
    const double now_ms = simulation.counts().us / 1e3;
    gaps.Look(simulation.state(), now_ms);
    const ScheduledSequence* sequence = long_one();
    has_begun = has_begun || sequence != nullptr;
    if (played.first_token_s == 0 && sequence != nullptr && sequence->decoding()) {
      played.first_token_s = now_ms / 1e3;
      played.longest_gap_in_prefill_ms = gaps.longest_ms();
    }
    if (simulation.counts().iterations > 200'000) break;
  }
  EXPECT_EQ(long_one(), nullptr);
  played.counts = simulation.counts();
  played.seconds = played.counts.us / 1e6;
  played.longest_gap_ms = gaps.longest_ms();
  played.longest_wait_s = gaps.longest_wait_ms() / 1e3;
  played.token_ms = (played.seconds - played.first_token_s) * 1e3 / kLongOutput;
  played.num_short_finished = simulation.num_finished() - 1;
  std::printf(
      "%-26s longest gap %6.1f ms (prefill %6.1f), wait %5.1f s; long one: first token after %5.1f s, one "
      "every "
      "%5.1f ms; %ld short ones in %.1f s; %ld visits in transit;",
      what.data(), played.longest_gap_ms, played.longest_gap_in_prefill_ms, played.longest_wait_s,
      played.first_token_s, played.token_ms, played.num_short_finished, played.seconds,
      played.counts.transit_visits);
  for (const auto& [shape, count] : played.counts.shapes) std::printf(" %s %ld", shape.c_str(), count);
  std::printf("\n");
  return played;
}

template <typename S>
Played PlayAs(std::string_view what, double transit_stretch = PlannerTuning().transit_stretch) {
  const AnalyticCosts costs = SmallSliceCosts(30, 110);
  S strategy(&costs);
  strategy.tuning().transit_stretch = transit_stretch;
  strategy.tuning().transit_alone_us *= transit_stretch / PlannerTuning().transit_stretch;
  return Play(&strategy, costs, what);
}

TEST(LongRequestTest, StreamsBesideItDoNotFreeze) {
  const Played whole =
      PlayAs<AutoStrategy>("auto, all layers at once", std::numeric_limits<double>::infinity());
  EXPECT_GT(std::max(whole.longest_gap_ms, 1e3 * whole.longest_wait_s), 1000);
  EXPECT_EQ(whole.counts.transit_visits, 0);
  for (const Played& played : {PlayAs<AutoStrategy>("auto"), PlayAs<AsyncStrategy>("async")}) {
    EXPECT_LE(played.longest_gap_ms, 100);
    EXPECT_LT(played.longest_wait_s, 10);
    EXPECT_GT(played.counts.transit_visits, 0);
    EXPECT_LT(played.first_token_s, 1.5 * whole.first_token_s);
  }
  // Without riders streams wait for decodes of the long one, not for its prompt.
  EXPECT_LE(PlayAs<AsymmetricStrategy>("asymmetric").longest_gap_in_prefill_ms, 100);
  EXPECT_LE(PlayAs<FullOffloadStrategy>("full-offload").longest_gap_in_prefill_ms, 100);
}

// Costs that a slice of 16 SMs of an H200 and 14 threads had with a gpu tier of as many tokens as here: what
// contexts beyond it cost is not measured.
TEST(LongRequestTest, IsServedByMeasuredCosts) {
  const auto costs = testing::MeasuredCosts();
  ASSERT_TRUE(costs.ok()) << costs.error().message;
  AutoStrategy strategy(&costs.value());
  const Played played = Play(&strategy, costs.value(), "auto, measured costs");
  EXPECT_LE(played.longest_gap_ms, 100);
  EXPECT_LT(played.longest_wait_s, 10);
  // Alone it computes for some 80 s.
  EXPECT_GT(played.first_token_s, 80);
  EXPECT_LT(played.first_token_s, 160);
}

}  // namespace
}  // namespace tandem
