// What each part of `auto` is worth on the mixtures that are drawn, each left out in turn: the table of
// docs/strategies.md. TANDEM_ABLATION=FIRST:COUNT prints it for these; nightly it is that of the first 40.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/nightly_testing.h"
#include "base/sanitizers.h"
#include "simulate/mixtures_testing.h"

namespace tandem {
namespace {

struct Variant {
  std::string_view name;
  std::string_view strategy = "auto";
  bool learns = true;
  // Riding begins if it promises so many times what two sub-batches do, whatever is to be filled.
  bool prices_filling_for_riding = true;
  bool prices_filling_for_two_batches = true;
  bool goes_by_full_offload = true;

  PlannerTuning tuning() const {
    PlannerTuning tuning;
    if (!prices_filling_for_riding) {
      tuning.worth_riding = 1;
      tuning.price_of_filling = 0;
    }
    if (!prices_filling_for_two_batches) tuning.most_filled_in = 0;
    if (!goes_by_full_offload) tuning.worth_offloading_all = std::numeric_limits<double>::infinity();
    return tuning;
  }
};

constexpr std::array kVariants = {
    Variant{.name = "all"},
    Variant{.name = "no price of filling for riding", .prices_filling_for_riding = false},
    Variant{.name = "no price of filling for two sub-batches", .prices_filling_for_two_batches = false},
    Variant{.name = "no price of filling",
            .prices_filling_for_riding = false,
            .prices_filling_for_two_batches = false},
    Variant{.name = "no learning", .learns = false},
    Variant{.name = "no full offload", .goes_by_full_offload = false},
    Variant{.name = "no riding", .strategy = "asymmetric"},
    Variant{.name = "no two sub-batches", .strategy = "async"},
    Variant{.name = "neither", .strategy = "gpu-only"}};

// Of the best fixed strategy, by variant.
std::array<std::vector<double>, kVariants.size()> PlayMany(const RunMachine& machine, uint32_t first,
                                                           uint32_t count, bool prints) {
  std::array<std::vector<double>, kVariants.size()> of_best;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const testing::Mixture mixture = testing::DrawMixture(seed, 300);
    AnalyticCosts true_costs = mixture.machine.costs;
    RunMachine on = machine;
    on.costs = &true_costs;
    const auto rate_of = [&](std::string_view strategy, bool learns, const PlannerTuning& tuning) {
      on.is_learned = learns;
      const PlayedRun run =
          testing::PlayWholeRun(strategy, mixture.machine, mixture.requests, mixture.name, &on, tuning);
      return static_cast<double>(run.output_tokens) / run.us;
    };
    double best = 0;
    for (const std::string_view strategy : {"gpu-only", "full-offload", "asymmetric", "async", "apex"})
      best = std::max(best, rate_of(strategy, true, {}));
    for (size_t i = 0; i < kVariants.size(); ++i) {
      const Variant& variant = kVariants[i];
      of_best[i].push_back(rate_of(variant.strategy, variant.learns, variant.tuning()) / best);
      if (prints) fmt::print("{:.4f} ", of_best[i].back());
    }
    if (prints) fmt::print("{}\n", mixture.name);
    std::fflush(stdout);
  }
  return of_best;
}

TEST(AblationTest, NoPartIsWorthLeavingOut) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  const char* wanted = std::getenv("TANDEM_ABLATION");
  unsigned first = 1;
  unsigned count = 40;
  if (wanted == nullptr && !IsNightly()) GTEST_SKIP() << "minutes: TANDEM_NIGHTLY=1";
  if (wanted != nullptr) std::sscanf(wanted, "%u:%u", &first, &count);
  const auto of_best = PlayMany({.noise = 0.05}, first, count, wanted != nullptr);
  const auto mean_of = [](const std::vector<double>& values) {
    return std::reduce(values.begin(), values.end()) / static_cast<double>(values.size());
  };
  fmt::print("| auto | mean | median | 5th percentile | worst | below 0.97 |\n|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < kVariants.size(); ++i) {
    const std::vector<double>& values = of_best[i];
    fmt::print("| {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {} |\n", kVariants[i].name, mean_of(values),
               testing::QuantileOf(values, 0.5), testing::QuantileOf(values, 0.05),
               testing::QuantileOf(values, 0),
               std::ranges::count_if(values, [](double value) { return value < 0.97; }));
  }
  // Learning and prices are for other cases: for wrong costs (LearningTest), and for the worst.
  for (size_t i = 1; i < kVariants.size(); ++i)
    EXPECT_LT(mean_of(of_best[i]), mean_of(of_best[0]) + 0.01) << kVariants[i].name;
}

}  // namespace
}  // namespace tandem
