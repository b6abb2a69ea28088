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
#include "simulate/mixtures_testing.h"

namespace tandem {
namespace {

// What is wrong.
struct Wrong {
  std::string_view name;
  double cpu_kv = 1;  // times what KV takes that CPU attention reads
  double pipelined = 1;
  double riding = 1;
};

constexpr std::array kWrong = {Wrong{.name = "nothing"},
                               Wrong{.name = "CPU attention 1.5", .cpu_kv = 1.5},
                               Wrong{.name = "with riders 1.15", .riding = 1.15},
                               Wrong{.name = "with riders 0.87", .riding = 0.87},
                               Wrong{.name = "two sub-batches 1.15", .pipelined = 1.15},
                               Wrong{.name = "two sub-batches 0.87", .pipelined = 0.87}};

struct Outcomes {
  std::vector<double> learned;  // of the best fixed strategy
  std::vector<double> unlearned;
};

Outcomes PlayMany(const Wrong& wrong, uint32_t first, uint32_t count, size_t num_requests, bool prints) {
  constexpr double kNoise = 0.05;
  Outcomes outcomes;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const testing::Mixture mixture = testing::DrawMixture(seed, num_requests);
    AnalyticCosts true_costs = mixture.machine.costs;
    true_costs.cpu_kv_ns *= wrong.cpu_kv;
    RunMachine machine = {
        .costs = &true_costs, .pipelined = wrong.pipelined, .riding = wrong.riding, .noise = kNoise};
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

}  // namespace
}  // namespace tandem
