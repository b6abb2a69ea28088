#include "simulate/mixtures_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>

namespace tandem::testing {
namespace {

// Fits to profiles of one H100 with 14 CPU threads: Llama-3.1-8B, and one shard of two of Llama-3.1-70B.
AnalyticCosts WholeGpuCosts() {
  AnalyticCosts costs = SmallSliceCosts(35, 124);
  costs.linear_us = 155;
  costs.linear_token_us = 0.67;
  costs.gpu_kv_ns = 1.4;
  costs.prefill_ns = 0.052;
  costs.exchange_us = 22;
  costs.swap_ns = 86;
  costs.outside_us = 500;
  return costs;
}

AnalyticCosts ShardCosts() {
  AnalyticCosts costs = WholeGpuCosts();
  costs.layers = 80;
  costs.linear_us = 300;
  costs.linear_token_us = 1.38;
  costs.gpu_kv_ns = 0.75;
  costs.prefill_ns = 0.055;
  costs.cpu_kv_ns = 19;
  costs.swap_ns = 50;
  return costs;
}

// The rooms for KV are those of evaluation/comparisons, where costs are.
std::vector<PlayedMachine> Machines() {
  return {{"A10G class", SmallSliceCosts(30, 110), 26'400, 600'000, 8'192},
          {"A10G class, 34k", SmallSliceCosts(30, 110), 34'000, 600'000, 8'192},
          {"T4 class", TinySliceCosts(30, 110), 2'240, 150'000, 1'024},
          {"T4 class, 860", TinySliceCosts(30, 110), 860, 150'000, 430},
          {"L4 class", SlowMemoryCosts(), 46'000, 400'000, 8'192},
          {"whole H100", WholeGpuCosts(), 26'400, 495'000, 8'192},
          {"70B shard", ShardCosts(), 39'000, 600'000, 8'192}};
}

class Draws {
 public:
  explicit Draws(uint32_t seed) : random_(seed) {}
  double Uniform() { return (static_cast<double>(random_()) + 0.5) * 0x1p-32; }
  double Between(double low, double high) { return low + (high - low) * Uniform(); }
  // As likely between 1 and 10 as between 10 and 100.
  double Scale(double low, double high) { return low * std::pow(high / low, Uniform()); }
  double Normal() {
    const double u = Uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * Uniform());
  }
  template <size_t kCount>
  double OneOf(const std::array<double, kCount>& values) {
    return values[static_cast<size_t>(Uniform() * kCount)];
  }
  size_t Index(size_t count) { return static_cast<size_t>(Uniform() * static_cast<double>(count)); }

 private:
  std::mt19937 random_;
};

// Log-normal lengths, cut at what the machine serves.
struct Kind {
  double mean_prompt = 0;
  double mean_output = 0;
  double sigma = 0;

  TraceRequest Draw(Draws* draws, int64_t max_tokens) const {
    const auto length = [&](double mean) {
      return std::max<int64_t>(2, std::llround(mean * std::exp(sigma * draws->Normal() - sigma * sigma / 2)));
    };
    TraceRequest request;
    do {
      request.prompt_tokens = length(mean_prompt);
      request.output_tokens = length(mean_output);
    } while (request.prompt_tokens + request.output_tokens > max_tokens);
    return request;
  }
};

Kind DrawKind(Draws* draws, int64_t max_tokens) {
  const auto most = static_cast<double>(max_tokens);
  return {.mean_prompt = draws->Scale(40, std::min(3'000.0, most / 3)),
          .mean_output = draws->Scale(25, std::min(1'200.0, most / 4)),
          .sigma = draws->Between(0.1, 0.9)};
}

}  // namespace

Mixture DrawMixture(uint32_t seed, size_t num_requests) {
  Draws draws(seed);
  Mixture mixture;
  const std::vector<PlayedMachine> machines = Machines();
  mixture.machine = machines[draws.Index(machines.size())];
  PlayedMachine& machine = mixture.machine;
  const double threads = draws.OneOf(std::array{1.0, 0.75, 0.5});
  machine.costs.cpu_kv_ns /= threads;
  machine.cpu_tokens =
      std::llround(static_cast<double>(machine.cpu_tokens) * draws.OneOf(std::array{1.0, 0.5, 0.25}));
  const Kind kind = DrawKind(&draws, machine.max_request_tokens);
  // A third of them have requests of a second kind.
  const bool has_other = draws.Uniform() < 1.0 / 3;
  const Kind other = DrawKind(&draws, machine.max_request_tokens);
  const double share = has_other ? draws.Between(0.1, 0.9) : 1;
  for (size_t i = 0; i < num_requests; ++i) {
    const Kind& of = draws.Uniform() < share ? kind : other;
    mixture.requests.push_back(of.Draw(&draws, machine.max_request_tokens));
  }
  mixture.name = fmt::format("{:3} {}, {:.2f} of its CPU, {}k in the cpu tier: {:.0f}/{:.0f} +- {:.1f}", seed,
                             machine.name, threads, machine.cpu_tokens / 1'000, kind.mean_prompt,
                             kind.mean_output, kind.sigma);
  if (has_other) {
    mixture.name += fmt::format(", {:.2f} of them {:.0f}/{:.0f} +- {:.1f}", 1 - share, other.mean_prompt,
                                other.mean_output, other.sigma);
  }
  return mixture;
}

double QuantileOf(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

}  // namespace tandem::testing
