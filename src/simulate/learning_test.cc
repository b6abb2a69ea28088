// What `auto` makes where the costs that it begins with are wrong, with what iterations teach and without.
// TANDEM_LEARNING=FIRST:COUNT plays these mixtures (mixtures_testing.h) and prints all.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/nightly_testing.h"
#include "base/sanitizers.h"
#include "perf/profile_file.h"
#include "simulate/mixtures_testing.h"

namespace tandem {
namespace {

// What is wrong.
struct Wrong {
  std::string_view name;
  double cpu_kv = 1;  // times what KV takes that CPU attention reads
  double pipelined = 1;
  double riding = 1;
  double hot = 1;           // of all iterations, after ten seconds
  double hand_over_us = 0;  // not times, but more, a layer with two sub-batches
};

constexpr std::array kWrong = {Wrong{.name = "nothing"},
                               Wrong{.name = "CPU attention 1.5", .cpu_kv = 1.5},
                               Wrong{.name = "with riders 1.15", .riding = 1.15},
                               Wrong{.name = "with riders 0.87", .riding = 0.87},
                               Wrong{.name = "two sub-batches 1.15", .pipelined = 1.15},
                               Wrong{.name = "two sub-batches 0.87", .pipelined = 0.87},
                               Wrong{.name = "all, once it is hot, 1.09", .hot = 1.09},
                               Wrong{.name = "hand-overs of 50 us", .hand_over_us = 50}};

struct Outcomes {
  std::vector<double> learned;  // of the best fixed strategy
  std::vector<double> unlearned;
};

Outcomes PlayMany(const Wrong& wrong, uint32_t first, uint32_t count, size_t num_requests, bool prints) {
  constexpr double kNoise = 0.05;
  constexpr double kHeatsUpUs = 10e6;
  Outcomes outcomes;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const testing::Mixture mixture = testing::DrawMixture(seed, num_requests);
    AnalyticCosts true_costs = mixture.machine.costs;
    true_costs.cpu_kv_ns *= wrong.cpu_kv;
    RunMachine machine = {.costs = &true_costs,
                          .pipelined = wrong.pipelined,
                          .riding = wrong.riding,
                          .all = wrong.hot,
                          .heats_up_us = kHeatsUpUs,
                          .hand_over_us = wrong.hand_over_us,
                          .noise = kNoise};
    const auto play = [&](std::string_view strategy) {
      return testing::PlayWholeRun(strategy, mixture.machine, mixture.requests, mixture.name, &machine);
    };
    const auto rate_of = [](const PlayedRun& run) { return static_cast<double>(run.output_tokens) / run.us; };
    double best = 0;
    std::string fixed;
    for (const std::string_view strategy : {"gpu-only", "asymmetric", "async"}) {
      const double rate = rate_of(play(strategy));
      fixed += fmt::format(" {} {:.0f}", strategy, 1e6 * rate);
      best = std::max(best, rate);
    }
    const PlayedRun learned = play("auto");
    machine.is_learned = false;
    const PlayedRun unlearned = play("auto");
    outcomes.learned.push_back(rate_of(learned) / best);
    outcomes.unlearned.push_back(rate_of(unlearned) / best);
    if (!prints) continue;
    fmt::print("{}: {:.3f} of best, {} changes; without learning {:.3f}, {} changes | {}\n", wrong.name,
               outcomes.learned.back(), std::ssize(learned.changes), outcomes.unlearned.back(),
               std::ssize(unlearned.changes), mixture.name + " |" + fixed);
    std::fflush(stdout);
  }
  const auto say = [&](std::string_view what, const std::vector<double>& values) {
    fmt::print("{} of {} mixtures, {}: median {:.3f} of the best, 5th percentile {:.3f}, worst {:.3f}\n",
               wrong.name, count, what, testing::QuantileOf(values, 0.5), testing::QuantileOf(values, 0.05),
               testing::QuantileOf(values, 0));
  };
  say("learned", outcomes.learned);
  say("not learned", outcomes.unlearned);
  return outcomes;
}

TEST(LearningTest, AutoFindsTheBetterStrategyWhereCostsAreWrong) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  unsigned first = 1;
  unsigned count = !IsNightly() ? 6 : 40;
  const char* wanted = std::getenv("TANDEM_LEARNING");
  if (wanted != nullptr) std::sscanf(wanted, "%u:%u", &first, &count);
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.name);
    const Outcomes outcomes = PlayMany(wrong, first, count, 300, wanted != nullptr);
    if (wanted != nullptr) continue;
    EXPECT_GE(testing::QuantileOf(outcomes.learned, 0.5), 0.95);
  }
}

// Costs as the whole H200 had them, of 1000/200, where riding promises about as much as none: each kind is
// seen only while it is in use, and looked the better the longer it had not been.
TEST(LearningTest, AMachineThatGetsWarmIsNoReasonToChange) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  const auto profile =
      ReadStoredProfile(TANDEM_SOURCE_DIR "/tests/fixtures/profiles/llama-3.1-8b_h200_whole.json");
  ASSERT_TRUE(profile.ok());
  testing::PlayedMachine whole = {.name = "whole H200", .gpu_tokens = 26'400, .cpu_tokens = 300'000};
  whole.costs.layers = profile->costs.num_layers();
  const std::vector<RunRequest> requests(1'500, {.prompt_tokens = 1'000, .output_tokens = 200});
  for (const double riding : {1.0, 1.03}) {
    SCOPED_TRACE(riding);
    const RunMachine machine = {.riding = riding, .all = 1.09, .heats_up_us = 10e6, .noise = 0.05};
    const auto play = [&](std::string_view strategy) {
      const auto run = PlayRunOn(machine, testing::SetupOn(whole, strategy), profile->costs, requests);
      EXPECT_TRUE(run.ok());
      return run.ok() ? *run : PlayedRun{};
    };
    const PlayedRun gpu_only = play("gpu-only");
    for (const std::string_view strategy : {"async", "auto"}) {
      const PlayedRun run = play(strategy);
      EXPECT_LE(run.changes.size(), 40) << strategy;
      EXPECT_LE(run.us, gpu_only.us / 0.99) << strategy;
    }
  }
}

// The 70B shard, 110/723. Who is pushed out of the gpu tier decodes on the CPU where that hides behind the
// GPU; taken for the GPU's, a constant a layer let ever more of them hide: 0.80 of gpu-only.
TEST(LearningTest, HandingOverIsNotTakenForTheGpus) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  const testing::Mixture mixture = testing::DrawMixture(8, 300);
  const RunMachine machine = {.hand_over_us = 50, .noise = 0.05};
  const auto us_of = [&](std::string_view strategy) {
    return testing::PlayWholeRun(strategy, mixture.machine, mixture.requests, mixture.name, &machine).us;
  };
  EXPECT_LE(us_of("asymmetric"), us_of("gpu-only") / 0.85);
}

}  // namespace
}  // namespace tandem
