#include "bench/engine_report.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/duration_histogram.h"
#include "bench/ratio_or_null.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

// Mean and percentiles of a histogram in a unit of us_per_unit microseconds; null where nothing was counted.
ordered_json HistogramToJson(const DurationHistogram& histogram, double us_per_unit,
                             const std::vector<std::pair<const char*, double>>& quantiles) {
  const bool any = histogram.count() > 0;
  ordered_json statistics = {
      {"mean", any ? ordered_json(histogram.MeanUs() / us_per_unit) : ordered_json(nullptr)}};
  for (const auto& [name, quantile] : quantiles) {
    statistics[name] =
        any ? ordered_json(histogram.QuantileUs(quantile) / us_per_unit) : ordered_json(nullptr);
  }
  return statistics;
}

ordered_json CountStrategies(const EngineStatsOfRun& stats) {
  ordered_json counts = ordered_json::object();
  for (const auto& [strategy, count] : stats.after.strategy_iterations) {
    const auto before = stats.before.strategy_iterations.find(strategy);
    const uint64_t of_run =
        count - (before == stats.before.strategy_iterations.end() ? uint64_t{0} : before->second);
    if (of_run > 0) counts[strategy] = of_run;
  }
  return counts.empty() ? ordered_json(nullptr) : counts;
}

// By strategy that was gone by: how long, what it promised and what it made, in tokens a second, and how
// often it was changed to.
ordered_json StrategiesToJson(const EngineStatsOfRun& stats) {
  ordered_json strategies = ordered_json::object();
  for (const auto& [strategy, after] : stats.after.strategies) {
    const auto found = stats.before.strategies.find(strategy);
    const StrategyAccount before = found == stats.before.strategies.end() ? StrategyAccount{} : found->second;
    const double seconds = after.seconds - before.seconds;
    if (seconds <= 0) continue;
    strategies[strategy] = {
        {"seconds", seconds},
        {"promised_throughput", (after.promised_tokens - before.promised_tokens) / seconds},
        {"made_throughput", static_cast<double>(after.made_tokens - before.made_tokens) / seconds},
        {"num_choices", after.num_choices - before.num_choices}};
  }
  return strategies.empty() ? ordered_json(nullptr) : strategies;
}

ordered_json CostFactors(const EngineStats& stats) {
  ordered_json factors = ordered_json::object();
  for (size_t kind = 0; kind < kIterationKindNames.size(); ++kind)
    factors[kIterationKindNames[kind]] = stats.iteration_factors[kind];
  factors["cpu_attention"] = stats.cpu_attention_factor;
  factors["gpu_beside_cpu_attention"] = stats.gpu_beside_cpu_attention_factor;
  return factors;
}

// What the workers of cpu attention did; null where they did nothing.
void AddCpuAttentionFields(const EngineStatsOfRun& stats, double duration_s, ordered_json* report) {
  const auto kv_gb =
      static_cast<double>(stats.after.cpu_attention_kv_bytes - stats.before.cpu_attention_kv_bytes) / 1e9;
  const double busy_s = stats.after.cpu_attention_busy_seconds - stats.before.cpu_attention_busy_seconds;
  if (busy_s <= 0) return;
  ordered_json& to = *report;
  to["cpu_attention_busy"] = RatioOrNull(busy_s, duration_s);
  to["cpu_attention_gb_per_s"] = RatioOrNull(kv_gb, duration_s);
  to["cpu_attention_busy_gb_per_s"] = kv_gb / busy_s;
  const auto attended_gb = static_cast<double>(stats.after.cpu_attention_attended_kv_bytes -
                                               stats.before.cpu_attention_attended_kv_bytes) /
                           1e9;
  const auto mtokens = static_cast<double>(stats.after.cpu_tier_tokens - stats.before.cpu_tier_tokens) / 1e6;
  to["cpu_attention_read_kb_per_token"] = RatioOrNull(kv_gb, mtokens);
  to["cpu_attention_attended_kb_per_token"] = RatioOrNull(attended_gb, mtokens);
}

}  // namespace

void AddEngineFields(const BenchConditions& conditions, const BenchRun& run, ordered_json* report) {
  constexpr double kUsPerMs = 1e3;
  ordered_json& to = *report;
  to["strategy"] = run.engine ? ordered_json(conditions.engine.strategy) : ordered_json(nullptr);
  for (const char* field : {"strategy_iterations",
                            "strategies",
                            "cost_factors",
                            "hand_over_us",
                            "gpu_busy",
                            "gpu_gap",
                            "cpu_attention_busy",
                            "cpu_attention_gb_per_s",
                            "cpu_attention_busy_gb_per_s",
                            "cpu_attention_read_kb_per_token",
                            "cpu_attention_attended_kb_per_token",
                            "gpu_kv_tokens",
                            "cpu_kv_tokens",
                            "max_cpu_kv_tokens",
                            "max_cpu_kv_gb",
                            "cpu_tier_tokens",
                            "rider_visits",
                            "rider_skips",
                            "swapped_tokens",
                            "preemptions",
                            "recomputed_tokens",
                            "prefix_hit_rate",
                            "iterations",
                            "iteration_tokens",
                            "prediction_error"}) {
    to[field] = nullptr;
  }
  const EngineStatsOfRun stats = run.engine.value_or(EngineStatsOfRun{});
  const EngineStats& before = stats.before;
  const EngineStats& after = stats.after;
  to["iteration_ms"] =
      HistogramToJson(after.iteration.Since(before.iteration), kUsPerMs, {{"p50", 0.5}, {"p99", 0.99}});
  to["schedule_us"] = HistogramToJson(after.schedule.Since(before.schedule), 1.0, {{"p99", 0.99}});
  if (!run.engine) return;
  // A clock that never moved is no measurement.
  const double counted_s = run.counted_seconds();
  const auto share = [&](double EngineStats::*seconds) {
    return after.*seconds > 0 ? RatioOrNull(after.*seconds - before.*seconds, counted_s)
                              : ordered_json(nullptr);
  };
  to["strategy_iterations"] = CountStrategies(stats);
  to["strategies"] = StrategiesToJson(stats);
  to["cost_factors"] = CostFactors(after);
  to["hand_over_us"] = after.hand_over_us;
  to["gpu_busy"] = share(&EngineStats::gpu_busy_seconds);
  to["gpu_gap"] = share(&EngineStats::gpu_gap_seconds);
  AddCpuAttentionFields(stats, counted_s, report);
  to["gpu_kv_tokens"] = after.gpu_blocks_total * after.block_size;
  to["cpu_kv_tokens"] = after.cpu_blocks_total * after.block_size;
  to["max_cpu_kv_tokens"] = after.max_cpu_kv_tokens;
  to["max_cpu_kv_gb"] = static_cast<double>(after.max_cpu_kv_tokens * run.kv_bytes_per_token) / 1e9;
  to["rider_visits"] = after.rider_visits - before.rider_visits;
  to["rider_skips"] = after.rider_skips - before.rider_skips;
  const uint64_t cpu_tier_tokens = after.cpu_tier_tokens - before.cpu_tier_tokens;
  to["cpu_tier_tokens"] = cpu_tier_tokens;
  to["swapped_tokens"] = after.swapped_tokens - before.swapped_tokens;
  to["preemptions"] = after.preemptions - before.preemptions;
  to["recomputed_tokens"] = after.recomputed_tokens - before.recomputed_tokens;
  to["prefix_hit_rate"] =
      RatioOrNull(static_cast<double>(after.prefix_hit_tokens - before.prefix_hit_tokens),
                  static_cast<double>(after.prefix_queried_tokens - before.prefix_queried_tokens));
  const uint64_t iterations = after.iterations - before.iterations;
  to["iterations"] = iterations;
  if (iterations > 0) {
    const auto mean = [iterations](uint64_t count) {
      return static_cast<double>(count) / static_cast<double>(iterations);
    };
    to["iteration_tokens"] = {
        {"prefill", mean(after.prompt_tokens - before.prompt_tokens)},
        {"gpu_tier", mean(after.generation_tokens - before.generation_tokens - cpu_tier_tokens)},
        {"cpu_tier", mean(cpu_tier_tokens)}};
  }
  to["prediction_error"] = RatioOrNull(after.prediction_error_seconds - before.prediction_error_seconds,
                                       after.predicted_seconds - before.predicted_seconds);
}

}  // namespace tandem
