#include "bench/comparison_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using nlohmann::ordered_json;

ordered_json RunResult(double output, ordered_json bound) {
  return {{"output_throughput", output},
          {"upper_bound_throughput", std::move(bound)},
          {"gpu_tier", {{"median_itl_ms", 10.0}, {"p99_itl_ms", 12.5}}},
          {"cpu_tier", {{"median_itl_ms", nullptr}, {"p99_itl_ms", nullptr}}},
          {"gpu_busy", 0.91},
          {"cpu_attention_busy", nullptr}};
}

TEST(ComparisonTableTest, ATableForEachWorkload) {
  ordered_json runs = ordered_json::array();
  runs.push_back({{"workload", "osc"}, {"strategy", "gpu-only"}, {"result", RunResult(200, nullptr)}});
  runs.push_back({{"workload", "osc"}, {"strategy", "async"}, {"result", RunResult(300, 400)}});
  runs.push_back({{"workload", "azure-conv"},
                  {"rate", 2.5},
                  {"strategy", "gpu-only"},
                  {"error", "all requests failed"}});
  const std::string text = FormatComparison({{"runs", runs}});
  EXPECT_NE(text.find("\nosc, bound 400.0 tok/s\n"), std::string::npos) << text;
  const std::string async_line =
      text.substr(text.find("  async"), text.find("\n\nazure") - text.find("  async"));
  for (const char* cell : {" 300.0", " 1.50", " 0.75", " 10.0", " 12.5", " 0.91", " -"})
    EXPECT_NE(async_line.find(cell), std::string::npos) << cell << " in " << async_line;
  // gpu-only takes the bound of the workload.
  EXPECT_NE(text.find("200.0     -        -   1.00     0.50"), std::string::npos) << text;
  EXPECT_NE(text.find("\nazure-conv, 2.5 requests/s\n"), std::string::npos) << text;
  EXPECT_NE(text.find("all requests failed"), std::string::npos) << text;
}

TEST(ComparisonTableTest, RoundsAreMediansWithTheirSpread) {
  ordered_json runs = ordered_json::array();
  for (const double output : {90, 120, 100}) {
    runs.push_back({{"workload", "osc"}, {"strategy", "gpu-only"}, {"result", RunResult(output, nullptr)}});
    runs.push_back({{"workload", "reasoning"}, {"strategy", "gpu-only"}, {"result", RunResult(7, nullptr)}});
  }
  runs.push_back({{"workload", "osc"}, {"strategy", "gpu-only"}, {"error", "stopped"}});
  const std::string text = FormatComparison({{"runs", runs}});
  EXPECT_NE(text.find("\n  gpu-only                     100.0  15.0 "), std::string::npos) << text;
  EXPECT_NE(text.find("\n  gpu-only                  stopped\n"), std::string::npos) << text;
  // Rounds of two workloads lie in turn; each has one table.
  EXPECT_EQ(text.find("\nosc"), text.rfind("\nosc"));
  EXPECT_NE(text.find("7.0   0.0 "), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem
