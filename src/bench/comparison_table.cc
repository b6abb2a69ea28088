#include "bench/comparison_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/distribution.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

std::optional<double> Number(const ordered_json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// The results of one strategy: one, or one for each round.
using Results = std::vector<const ordered_json*>;

std::vector<double> Values(const Results& results, const char* field) {
  std::vector<double> values;
  for (const ordered_json* result : results) {
    if (const auto value = Number(*result, field)) values.push_back(*value);
  }
  std::ranges::sort(values);
  return values;
}

std::optional<double> MedianOf(const std::vector<double>& sorted) {
  if (sorted.empty()) return std::nullopt;
  return Percentile(sorted, 50);
}

std::optional<double> Median(const Results& results, const char* field) {
  return MedianOf(Values(results, field));
}

std::optional<double> TierMedian(const Results& results, const char* tier, const char* field) {
  Results of_tier;
  for (const ordered_json* result : results) {
    const auto found = result->find(tier);
    if (found != result->end() && found->is_object()) of_tier.push_back(&*found);
  }
  return Median(of_tier, field);
}

// Half the range over the median, in percent.
std::optional<double> SpreadPercent(const std::vector<double>& sorted) {
  const auto median = MedianOf(sorted);
  if (sorted.size() < 2 || *median == 0) return std::nullopt;
  return (sorted.back() - sorted.front()) / 2 / std::abs(*median) * 100;
}

std::optional<double> Ratio(std::optional<double> value, std::optional<double> base) {
  if (!value || !base || *base == 0) return std::nullopt;
  return *value / *base;
}

std::string Cell(std::optional<double> value, int width, int digits) {
  return value ? fmt::format("{:>{}.{}f}", *value, width, digits) : fmt::format("{:>{}}", "-", width);
}

struct StrategyLine {
  std::string strategy;
  Results results;
  std::vector<std::string> errors;  // of rounds that failed
};

struct ComparisonTable {
  std::string title;
  std::vector<StrategyLine> lines;
};

template <typename Item>
Item& FindOrAdd(std::vector<Item>* items, std::string Item::*name, const std::string& value) {
  const auto found = std::ranges::find(*items, value, name);
  if (found != items->end()) return *found;
  items->emplace_back().*name = value;
  return items->back();
}

std::string FormatLine(const StrategyLine& line, std::optional<double> base, std::optional<double> bound) {
  const Results& results = line.results;
  const std::vector<double> output = Values(results, "output_throughput");
  const auto own_bound = Median(results, "upper_bound_throughput");
  return Cell(MedianOf(output), 10, 1) + Cell(SpreadPercent(output), 6, 1) +
         Cell(Median(results, "balanced_output_throughput"), 9, 1) +
         Cell(Ratio(MedianOf(output), base), 7, 2) +
         Cell(Ratio(MedianOf(output), own_bound ? own_bound : bound), 9, 2) +
         Cell(Median(results, "mean_per_token_latency_s"), 9, 4) +
         Cell(TierMedian(results, "gpu_tier", "median_itl_ms"), 10, 1) +
         Cell(TierMedian(results, "gpu_tier", "p99_itl_ms"), 10, 1) +
         Cell(TierMedian(results, "cpu_tier", "median_itl_ms"), 10, 1) +
         Cell(TierMedian(results, "cpu_tier", "p99_itl_ms"), 10, 1) +
         Cell(Median(results, "gpu_busy"), 8, 2) + Cell(Median(results, "cpu_attention_busy"), 8, 2);
}

std::string FormatTable(const ComparisonTable& table) {
  constexpr int kNameWidth = 24;
  std::optional<double> base;
  std::optional<double> bound;
  for (const StrategyLine& line : table.lines) {
    if (!base) base = Median(line.results, "output_throughput");
    if (!bound) bound = Median(line.results, "upper_bound_throughput");
  }
  std::string text =
      fmt::format("\n{}{}\n", table.title, bound ? fmt::format(", bound {:.1f} tok/s", *bound) : "");
  text += fmt::format("  {:<{}}{:>10}{:>6}{:>9}{:>7}{:>9}{:>9}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}\n", "",
                      kNameWidth, "tok/s", "+-%", "balance", "x", "of bound", "s/token", "gpu p50", "gpu p99",
                      "cpu p50", "cpu p99", "gpu", "cpu");
  for (const StrategyLine& line : table.lines) {
    if (!line.results.empty())
      text += fmt::format("  {:<{}}{}\n", line.strategy, kNameWidth, FormatLine(line, base, bound));
    for (const std::string& error : line.errors)
      text += fmt::format("  {:<{}}  {}\n", line.strategy, kNameWidth, error);
  }
  return text;
}

}  // namespace

std::string FormatComparison(const ordered_json& comparison) {
  std::vector<ComparisonTable> tables;
  for (const ordered_json& run : comparison.at("runs")) {
    auto title = run.at("workload").get<std::string>();
    if (const auto rate = Number(run, "rate")) title += fmt::format(", {} requests/s", *rate);
    StrategyLine& line = FindOrAdd(&FindOrAdd(&tables, &ComparisonTable::title, title).lines,
                                   &StrategyLine::strategy, run.at("strategy").get<std::string>());
    const auto result = run.find("result");
    if (result != run.end()) {
      line.results.push_back(&*result);
    } else {
      line.errors.push_back(run.at("error").get<std::string>());
    }
  }
  std::string text;
  for (const ComparisonTable& table : tables) text += FormatTable(table);
  return text +
         "\n+-%: half the range of all rounds, of tok/s; balance: tok/s in balance; s/token: latency over\n"
         "output tokens, mean over requests; gpu and cpu p50, p99: ms from token to token in that tier;\n"
         "gpu, cpu: share of the time they were busy. Of several rounds, medians\n";
}

}  // namespace tandem
