// Time to sample one row, by what is asked of it.
#include <span>

#include "host_bench.h"
#include "ops/host/sampling/token_sampler.h"

namespace tandem {
namespace {

void BM_Sample(benchmark::State& state, SampleRow row) {
  // The spread of a trained model's logits: a few likely tokens.
  std::minstd_rand random(3);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> logits(static_cast<size_t>(state.range(0)));
  for (float& logit : logits) logit = normal(random);
  const RowKernels& kernels = RowKernelsFor(BestCpuIsa());
  double best_s = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    ++row.position;
    benchmark::DoNotOptimize(SampleToken(logits, row, kernels));
    best_s =
        std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  state.counters["best_us"] = best_s * 1e6;
}

BENCHMARK_CAPTURE(BM_Sample, greedy, SampleRow{.temperature = 0.0F})->Arg(49152)->Arg(151936);
BENCHMARK_CAPTURE(BM_Sample, temperature, SampleRow{.temperature = 0.8F})->Arg(49152)->Arg(151936);
BENCHMARK_CAPTURE(BM_Sample, top_p, SampleRow{.temperature = 0.8F, .top_p = 0.95F})->Arg(49152)->Arg(151936);
BENCHMARK_CAPTURE(BM_Sample, top_k, SampleRow{.temperature = 0.8F, .top_k = 50})->Arg(49152)->Arg(151936);
BENCHMARK_CAPTURE(BM_Sample, top_p_k_min_p,
                  SampleRow{.temperature = 0.8F, .top_p = 0.95F, .top_k = 50, .min_p = 0.05F})
    ->Arg(49152);
BENCHMARK_CAPTURE(BM_Sample, penalties, SampleRow{.temperature = 0.8F, .repetition_penalty = 1.1F})
    ->Arg(49152);
BENCHMARK_CAPTURE(BM_Sample, top_logprobs, SampleRow{.temperature = 0.0F, .num_top_logprobs = 20})
    ->Arg(49152);

}  // namespace
}  // namespace tandem
