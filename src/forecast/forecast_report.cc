#include "forecast/forecast_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "forecast/units.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

ordered_json LoadedJson(const LoadedForecast& loaded) {
  return {{"request_rate", loaded.rate},
          {"output_throughput", loaded.output_throughput},
          {"median_ttft_ms", loaded.median_ttft_ms},
          {"p99_ttft_ms", loaded.p99_ttft_ms},
          {"median_tpot_ms", loaded.median_tpot_ms},
          {"mean_per_token_latency_s", loaded.per_token_latency_s}};
}

ordered_json StrategyJson(const StrategyForecast& of, const Forecast& forecast, double price) {
  const SaturatedForecast& saturated = of.saturated;
  ordered_json json = {{"strategy", of.strategy},
                       {"output_throughput", saturated.output_throughput},
                       {"over_gpu_only", saturated.output_throughput / forecast.gpu_only},
                       {"of_upper_bound", saturated.output_throughput / forecast.upper_bound},
                       {"tpot_ms", saturated.tpot_ms},
                       {"gpu_kv_tokens", saturated.kv_tokens[0]},
                       {"cpu_kv_tokens", saturated.kv_tokens[1]},
                       {"gpu_tier_requests", saturated.decodes[0]},
                       {"cpu_tier_requests", saturated.decodes[1]},
                       {"cpu_attention_busy", saturated.cpu_busy},
                       {"time_share",
                        {{"weights", saturated.share.weights_us},
                         {"products", saturated.share.products_us},
                         {"gpu_attention", saturated.share.gpu_attention_us},
                         {"cpu_wait", saturated.share.cpu_wait_us},
                         {"copies", saturated.share.copies_us},
                         {"outside_layers", saturated.share.outside_us}}},
                       {"limit", saturated.limit},
                       {"joules_per_token", nullptr}};
  if (saturated.joules_per_token) json["joules_per_token"] = *saturated.joules_per_token;
  constexpr double kSecondsAnHour = 3600;
  if (price > 0) json["output_tokens_per_dollar"] = saturated.output_throughput * kSecondsAnHour / price;
  json["loaded"] = LoadedJson(of.loaded);
  return json;
}

// 0 is not known.
ordered_json FigureJson(double figure) {
  return figure > 0 ? ordered_json(figure) : ordered_json(nullptr);
}

std::string Tokens(double tokens) {
  return fmt::format("{:.0f}", tokens);
}

}  // namespace

ordered_json ForecastJson(const ForecastOptions& options, const ForecastMachine& machine,
                          const Forecast& forecast, double price) {
  ordered_json json = {{"simulated", true},
                       {"gpu", machine.gpu},
                       {"host", machine.host},
                       {"tensor_parallel_size", machine.num_shards},
                       {"costs_from", machine.costs_from},
                       {"model", machine.model.name},
                       {"weights", machine.model.form},
                       {"weight_bytes", machine.model.weight_bytes()},
                       {"kv_bytes_per_token", machine.model.kv_token_bytes()},
                       {"gpu_memory_utilization", machine.gpu_memory_utilization},
                       {"gpu_kv_tokens", machine.gpu_kv_tokens},
                       {"cpu_kv_tokens", machine.cpu_kv_tokens},
                       {"cpu_attention_gb_per_s", machine.cpu_attention_bytes_per_s / kGB},
                       {"gpu_watts", FigureJson(machine.gpu_watts)},
                       {"watts_per_core", FigureJson(machine.watts_per_core)},
                       {"max_num_seqs", machine.max_num_seqs},
                       {"max_num_batched_tokens", machine.max_num_batched_tokens},
                       {"workload", options.workload},
                       {"num_requests", forecast.num_requests},
                       {"dropped", forecast.num_dropped},
                       {"mean_context", forecast.lengths.context},
                       {"prompt_tokens_per_output", forecast.lengths.prompt_per_output},
                       {"gpu_only_request_rate", forecast.gpu_only_rate()},
                       {"ideal_gpu_only_throughput", forecast.ideal_gpu_only},
                       {"upper_bound_throughput", forecast.upper_bound}};
  if (price > 0) json["price_per_hour"] = price;
  for (const StrategyForecast& of : forecast.strategies)
    json["strategies"].push_back(StrategyJson(of, forecast, price));
  for (const LoadPoint& point : forecast.load_sweep) {
    ordered_json loaded = LoadedJson(point.loaded);
    loaded["strategy"] = point.strategy;
    json["load_sweep"].push_back(std::move(loaded));
  }
  for (const BandwidthPoint& point : forecast.bandwidth_sweep) {
    json["host_bandwidth_sweep"].push_back({{"cpu_attention_gb_per_s", point.cpu_attention_bytes_per_s / kGB},
                                            {"gpu_only_throughput", forecast.gpu_only},
                                            {"best_throughput", point.best},
                                            {"best_strategy", point.best_strategy},
                                            {"upper_bound_throughput", point.upper_bound}});
  }
  return json;
}

std::string ForecastText(const ordered_json& report) {
  std::string text;
  const auto line = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
    text += '\n';
  };
  const auto number = [](const ordered_json& json) { return json.get<double>(); };
  const auto word = [](const ordered_json& json) { return json.get<std::string>(); };
  if (!word(report["gpu"]).empty()) line("GPU        {}", word(report["gpu"]));
  if (!word(report["host"]).empty()) line("host       {}", word(report["host"]));
  line("costs      from {}; CPU attention reads {:.0f} GB/s", word(report["costs_from"]),
       number(report["cpu_attention_gb_per_s"]));
  line("model      {}, weights {:.2f} GiB ({}), KV cache {} bytes a token", word(report["model"]),
       ToGiB(report["weight_bytes"].get<int64_t>()), word(report["weights"]),
       report["kv_bytes_per_token"].get<int64_t>());
  const double utilization = number(report["gpu_memory_utilization"]);
  line("tiers      {} KV tokens on the GPU{}, {} in the host's memory",
       report["gpu_kv_tokens"].get<int64_t>(),
       utilization > 0 ? fmt::format(" (--gpu-memory-utilization {:.2f})", utilization) : "",
       report["cpu_kv_tokens"].get<int64_t>());
  line("workload   {}: {} requests{}, mean context {:.0f}, {:.1f} prompt tokens for each of output",
       word(report["workload"]), report["num_requests"].get<int64_t>(),
       report["dropped"].get<int64_t>() > 0
           ? fmt::format(" ({} that are too long left out)", report["dropped"].get<int64_t>())
           : "",
       number(report["mean_context"]), number(report["prompt_tokens_per_output"]));
  line("bound      {:.0f} output tok/s of GPU and CPU together, {:.0f} of an ideal gpu-only",
       number(report["upper_bound_throughput"]), number(report["ideal_gpu_only_throughput"]));
  const bool has_price = report.contains("price_per_hour");
  const bool has_energy = !report["strategies"].front()["joules_per_token"].is_null();
  if (has_energy) {
    line("energy     at most: {:.0f} W of the GPU, {:.1f} W of each busy core", number(report["gpu_watts"]),
         number(report["watts_per_core"]));
  }
  size_t width = 14;
  for (const ordered_json& of : report["strategies"]) width = std::max(width, word(of["strategy"]).size());
  const auto first = [&](const std::string& strategy) { return fmt::format("{:<{}}", strategy, width); };
  line("\nsimulated, all requests waiting:\n");
  line("{} {:>8} {:>6} {:>6} {:>9} {:>10} {:>10} {:>5}{}{}  limit", first("strategy"), "tok/s", "gain",
       "bound", "TPOT, ms", "KV on GPU", "KV on host", "CPU", has_price ? "    tok/$" : "",
       has_energy ? "  J/tok" : "");
  for (const ordered_json& of : report["strategies"]) {
    line("{} {:>8.1f} {:>5.2f}x {:>6.2f} {:>9.1f} {:>10} {:>10} {:>4.0f}%{}{}  {}",
         first(word(of["strategy"])), number(of["output_throughput"]), number(of["over_gpu_only"]),
         number(of["of_upper_bound"]), number(of["tpot_ms"]), Tokens(number(of["gpu_kv_tokens"])),
         Tokens(number(of["cpu_kv_tokens"])), 100 * number(of["cpu_attention_busy"]),
         has_price ? fmt::format(" {:>8.2g}", number(of["output_tokens_per_dollar"])) : "",
         has_energy ? fmt::format(" {:>6.2f}", number(of["joules_per_token"])) : "", word(of["limit"]));
  }
  line("\nsimulated, {:.2f} requests a second arriving:\n",
       number(report["strategies"].front()["loaded"]["request_rate"]));
  line("{} {:>8} {:>10} {:>10} {:>9}", first("strategy"), "tok/s", "TTFT, ms", "p99", "TPOT, ms");
  for (const ordered_json& of : report["strategies"]) {
    const ordered_json& loaded = of["loaded"];
    line("{} {:>8.1f} {:>10.0f} {:>10.0f} {:>9.1f}", first(word(of["strategy"])),
         number(loaded["output_throughput"]), number(loaded["median_ttft_ms"]), number(loaded["p99_ttft_ms"]),
         number(loaded["median_tpot_ms"]));
  }
  if (report.contains("load_sweep")) {
    line("\nlatency against load:\n\n{} {:>10} {:>8} {:>10} {:>9} {:>12}", first("strategy"), "requests/s",
         "tok/s", "TTFT, ms", "TPOT, ms", "s a token");
    for (const ordered_json& point : report["load_sweep"]) {
      line("{} {:>10.2f} {:>8.1f} {:>10.0f} {:>9.1f} {:>12.3f}", first(word(point["strategy"])),
           number(point["request_rate"]), number(point["output_throughput"]), number(point["median_ttft_ms"]),
           number(point["median_tpot_ms"]), number(point["mean_per_token_latency_s"]));
    }
  }
  if (report.contains("host_bandwidth_sweep")) {
    line("\nthroughput against what CPU attention reads:\n\n{:>8} {:>10} {:>10} {:>8}  best strategy", "GB/s",
         "gpu-only", "best", "bound");
    for (const ordered_json& point : report["host_bandwidth_sweep"]) {
      line("{:>8.0f} {:>10.1f} {:>10.1f} {:>8.1f}  {}", number(point["cpu_attention_gb_per_s"]),
           number(point["gpu_only_throughput"]), number(point["best_throughput"]),
           number(point["upper_bound_throughput"]), word(point["best_strategy"]));
    }
  }
  return text;
}

}  // namespace tandem
