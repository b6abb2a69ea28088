// `auto` beside the strategies that it could have been, on mixtures of work that are drawn from seeds
// (mixtures_testing.h). TANDEM_NIGHTLY=1 plays 200 of them. TANDEM_MIXTURES=FIRST:COUNT[:REQUESTS] plays
// these and prints all: for whoever tunes. TANDEM_MIXTURES_FOLDER then gets SEED.csv of each, a workload of
// `tandem bench`: for whoever measures.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/nightly_testing.h"
#include "base/sanitizers.h"
#include "simulate/mixtures_testing.h"

namespace tandem {
namespace {

// What it could have been.
constexpr std::array<std::string_view, 5> kFixed = {"gpu-only", "full-offload", "asymmetric", "async",
                                                    "apex"};

struct Outcome {
  double of_best = 0;
  double of_gpu_only = 0;
};

void Write(const testing::Mixture& mixture, const std::filesystem::path& path) {
  std::ofstream file(path);
  file << "prompt_tokens,output_tokens\n";
  for (const TraceRequest& request : mixture.requests)
    file << request.prompt_tokens << ',' << request.output_tokens << '\n';
  TANDEM_CHECK(file.flush().good(), "{} cannot be written", path.string());
}

Outcome Play(uint32_t seed, size_t num_requests, bool prints) {
  const testing::Mixture mixture = testing::DrawMixture(seed, num_requests);
  if (const char* folder = std::getenv("TANDEM_MIXTURES_FOLDER"); prints && folder != nullptr)
    Write(mixture, std::filesystem::path(folder) / fmt::format("{}.csv", seed));
  const auto rate_of = [&](std::string_view strategy) {
    return testing::WholeRunThroughput(strategy, mixture.machine, mixture.requests, mixture.name);
  };
  std::map<std::string_view, double> rates;
  double best = 0;
  for (const std::string_view strategy : kFixed) {
    rates[strategy] = rate_of(strategy);
    best = std::max(best, rates[strategy]);
  }
  const double rate = rate_of("auto");
  if (prints) {
    fmt::print("{:.3f} of best, {:.3f} of gpu-only, which makes {:.0f} tok/s |", rate / best,
               rate / rates["gpu-only"], rates["gpu-only"]);
    for (const std::string_view strategy : kFixed)
      fmt::print(" {} {:.3f}", strategy, rates[strategy] / rates["gpu-only"]);
    fmt::print(" | {}\n", mixture.name);
    std::fflush(stdout);
  }
  return {.of_best = rate / best, .of_gpu_only = rate / rates["gpu-only"]};
}

struct Summary {
  double median = 0;
  double fifth_percentile = 0;
  double worst = 0;
  double worst_of_gpu_only = 0;
};

Summary PlayMany(uint32_t first, uint32_t count, size_t num_requests, bool prints) {
  std::vector<double> of_best;
  std::vector<double> of_gpu_only;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = Play(seed, num_requests, prints);
    of_best.push_back(outcome.of_best);
    of_gpu_only.push_back(outcome.of_gpu_only);
  }
  const Summary summary = {.median = testing::QuantileOf(of_best, 0.5),
                           .fifth_percentile = testing::QuantileOf(of_best, 0.05),
                           .worst = testing::QuantileOf(of_best, 0),
                           .worst_of_gpu_only = testing::QuantileOf(of_gpu_only, 0)};
  fmt::print(
      "{} mixtures of {} requests: median {:.3f} of the best, 5th percentile {:.3f}, worst {:.3f}; worst of "
      "gpu-only {:.3f}\n",
      count, num_requests, summary.median, summary.fifth_percentile, summary.worst,
      summary.worst_of_gpu_only);
  return summary;
}

TEST(MixturesTest, AutoIsNearTheBest) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  unsigned first = 1;
  unsigned count = IsNightly() ? 200 : 12;
  unsigned long num_requests = 300;
  const char* wanted = std::getenv("TANDEM_MIXTURES");
  if (wanted != nullptr) std::sscanf(wanted, "%u:%u:%lu", &first, &count, &num_requests);
  const Summary summary = PlayMany(first, count, num_requests, wanted != nullptr);
  if (wanted != nullptr) return;
  // Of the first 200: 1.000, 0.971, 0.910 and 0.960. So that it can only get better.
  EXPECT_GE(summary.median, 0.99);
  EXPECT_GE(summary.fifth_percentile, IsNightly() ? 0.97 : 0.95);
  EXPECT_GE(summary.worst, 0.9);
  EXPECT_GE(summary.worst_of_gpu_only, 0.95);
}

// Where nobody is wanted in the cpu tier, as in 200 (the 70B shard, 75/250), what overflows the gpu tier goes
// there and comes back, and the gpu tier is as full as without it.
TEST(MixturesTest, WithNobodyWantedInTheCpuTierAutoIsNoSlowerThanGpuOnly) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  const testing::Mixture mixture = testing::DrawMixture(200, 2'000);
  const auto rate_of = [&](std::string_view strategy) {
    return testing::WholeRunThroughput(strategy, mixture.machine, mixture.requests, mixture.name);
  };
  const double gpu_only = rate_of("gpu-only");
  for (const std::string_view strategy : {"asymmetric", "async", "auto"})
    EXPECT_GE(rate_of(strategy), 0.99 * gpu_only) << strategy;
}

// TANDEM_LONG_RUNS=FIRST:COUNT:REQUESTS plays these and prints all.
TEST(MixturesTest, LongRunsOfAutoLoseLittleToGpuOnly) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  const char* wanted = std::getenv("TANDEM_LONG_RUNS");
  if (wanted == nullptr && !IsNightly()) GTEST_SKIP() << "minutes: TANDEM_NIGHTLY=1";
  unsigned first = 1;
  unsigned count = 20;
  unsigned long num_requests = 1'000;
  if (wanted != nullptr) std::sscanf(wanted, "%u:%u:%lu", &first, &count, &num_requests);
  for (unsigned seed = first; seed < first + count; ++seed) {
    const testing::Mixture mixture = testing::DrawMixture(seed, num_requests);
    const auto rate_of = [&](std::string_view strategy) {
      return testing::WholeRunThroughput(strategy, mixture.machine, mixture.requests, mixture.name);
    };
    const double of_gpu_only = rate_of("auto") / rate_of("gpu-only");
    if (wanted != nullptr) fmt::print("{:.3f} of gpu-only | {}\n", of_gpu_only, mixture.name);
    std::fflush(stdout);
    EXPECT_GE(of_gpu_only, 0.985) << mixture.name;
  }
}

}  // namespace
}  // namespace tandem
