#include "bench/comparison_table.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using nlohmann::ordered_json;

std::optional<double> Number(const ordered_json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<double> TierNumber(const ordered_json& result, const char* tier, const char* field) {
  const auto found = result.find(tier);
  return found == result.end() || !found->is_object() ? std::nullopt : Number(*found, field);
}

std::optional<double> Ratio(std::optional<double> value, std::optional<double> base) {
  if (!value || !base || *base == 0) return std::nullopt;
  return *value / *base;
}

std::string Cell(std::optional<double> value, int width, int digits) {
  return value ? fmt::format("{:>{}.{}f}", *value, width, digits) : fmt::format("{:>{}}", "-", width);
}

// The runs of one workload.
std::string FormatTable(const std::string& title, const std::vector<const ordered_json*>& runs) {
  constexpr int kNameWidth = 24;
  std::optional<double> base;
  std::optional<double> bound;
  for (const ordered_json* run : runs) {
    const auto result = run->find("result");
    if (result == run->end()) continue;
    if (!base) base = Number(*result, "output_throughput");
    if (!bound) bound = Number(*result, "upper_bound_throughput");
  }
  std::string text = fmt::format("\n{}{}\n", title, bound ? fmt::format(", bound {:.1f} tok/s", *bound) : "");
  text += fmt::format("  {:<{}}{:>10}{:>7}{:>9}{:>9}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}\n", "", kNameWidth,
                      "tok/s", "x", "of bound", "s/token", "gpu p50", "gpu p99", "cpu p50", "cpu p99", "gpu",
                      "cpu");
  for (const ordered_json* run : runs) {
    text += fmt::format("  {:<{}}", run->at("strategy").get<std::string>(), kNameWidth);
    const auto found = run->find("result");
    if (found == run->end()) {
      text += fmt::format("  {}\n", run->at("error").get<std::string>());
      continue;
    }
    const ordered_json& result = *found;
    const auto output = Number(result, "output_throughput");
    const auto own_bound = Number(result, "upper_bound_throughput");
    text += Cell(output, 10, 1) + Cell(Ratio(output, base), 7, 2) +
            Cell(Ratio(output, own_bound ? own_bound : bound), 9, 2) +
            Cell(Number(result, "mean_per_token_latency_s"), 9, 4) +
            Cell(TierNumber(result, "gpu_tier", "median_itl_ms"), 10, 1) +
            Cell(TierNumber(result, "gpu_tier", "p99_itl_ms"), 10, 1) +
            Cell(TierNumber(result, "cpu_tier", "median_itl_ms"), 10, 1) +
            Cell(TierNumber(result, "cpu_tier", "p99_itl_ms"), 10, 1) +
            Cell(Number(result, "gpu_busy"), 8, 2) + Cell(Number(result, "cpu_attention_busy"), 8, 2) + "\n";
  }
  return text;
}

}  // namespace

std::string FormatComparison(const ordered_json& comparison) {
  std::vector<std::string> titles;
  std::vector<std::vector<const ordered_json*>> runs;
  for (const ordered_json& run : comparison.at("runs")) {
    auto title = run.at("workload").get<std::string>();
    if (const auto rate = Number(run, "rate")) title += fmt::format(", {} requests/s", *rate);
    if (titles.empty() || titles.back() != title) {
      titles.push_back(std::move(title));
      runs.emplace_back();
    }
    runs.back().push_back(&run);
  }
  std::string text;
  for (size_t i = 0; i < titles.size(); ++i) text += FormatTable(titles[i], runs[i]);
  return text +
         "\ns/token: latency over output tokens, mean over requests; gpu and cpu p50, p99: ms from token to "
         "token in that tier; gpu, cpu: share of the time they were "
         "busy\n";
}

}  // namespace tandem
