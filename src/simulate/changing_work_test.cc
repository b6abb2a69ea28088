// Work that changes within a run, on a machine whose iterations are noisy: osc, then 1000 in and 800 out,
// then azure-conv, in the order of the queue. What `auto` makes of each part beside the best strategy of that
// part, and how long it takes to change over: the table of docs/strategies.md.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/nightly_testing.h"
#include "base/sanitizers.h"
#include "perf/analytic_costs.h"
#include "simulate/whole_run_testing.h"
#include "traces/embedded_traces.h"
#include "traces/trace_csv.h"
#include "traces/trace_split.h"

namespace tandem {
namespace {

constexpr size_t kRequestsOfPart = 250;

std::vector<TraceRequest> RowsOf(std::string_view name, int64_t max_tokens) {
  std::vector<TraceRequest> rows;
  for (const EmbeddedTrace& trace : EmbeddedTraces()) {
    if (trace.file_name != name) continue;
    const auto all = ParseTraceCsv(trace.content, std::string(name));
    EXPECT_TRUE(all.ok());
    for (const TraceRequest& row : TuningPart(*all)) {
      if (row.prompt_tokens + row.output_tokens <= max_tokens && rows.size() < kRequestsOfPart)
        rows.push_back({.prompt_tokens = row.prompt_tokens, .output_tokens = row.output_tokens});
    }
  }
  EXPECT_EQ(rows.size(), kRequestsOfPart) << name;
  return rows;
}

std::vector<RunRequest> Queue(const std::vector<std::vector<TraceRequest>>& parts) {
  std::vector<RunRequest> queue;
  for (const std::vector<TraceRequest>& part : parts) {
    for (const TraceRequest& row : part)
      queue.push_back({.prompt_tokens = row.prompt_tokens, .output_tokens = row.output_tokens});
  }
  return queue;
}

PlayedRun Play(const testing::PlayedMachine& machine, std::string_view strategy,
               const std::vector<RunRequest>& queue) {
  const RunMachine noisy = {.noise = 0.05};
  const auto run = PlayRunOn(noisy, testing::SetupOn(machine, strategy), machine.costs, queue);
  EXPECT_TRUE(run.ok()) << machine.name << ", " << strategy << ": " << run.error().message;
  return run.ok() ? *run : PlayedRun();
}

struct Fastest {
  std::string_view strategy;
  double s = std::numeric_limits<double>::infinity();
};

Fastest FastestOf(const testing::PlayedMachine& machine, const std::vector<RunRequest>& queue) {
  Fastest fastest;
  for (const std::string_view strategy : {"gpu-only", "asymmetric", "async"}) {
    const double s = Play(machine, strategy, queue).us / 1e6;
    if (s < fastest.s) fastest = {strategy, s};
  }
  return fastest;
}

// Seconds from the first token of a part's first request to the last change before the next part begins.
std::string ChangedOver(const PlayedRun& run, size_t part) {
  const auto begin_us_of = [&](size_t which) {
    const size_t first = which * kRequestsOfPart;
    return first < run.times.size() ? run.times[first].first_token_us : run.us;
  };
  StrategyChange last;
  for (const StrategyChange& change : run.changes) {
    if (change.us < begin_us_of(part + 1)) last = change;
  }
  return fmt::format("{} after {:.0f}", last.strategy, std::max(0.0, last.us - begin_us_of(part)) / 1e6);
}

TEST(ChangingWorkTest, AutoGoesAlong) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  std::vector<testing::PlayedMachine> machines = {
      {"A10G class", SmallSliceCosts(30, 110), 26'400, 600'000, 8'192}};
  if (IsNightly()) {
    machines.push_back({"T4 class", TinySliceCosts(30, 110), 2'240, 150'000, 2'048});
    machines.push_back({"L4 class", testing::SlowMemoryCosts(), 46'000, 400'000, 8'192});
  }
  fmt::print(
      "| machine | best of each part alone, s | best of all, s | auto, s | auto goes by, after s |\n"
      "|---|---|---|---|---|\n");
  for (const testing::PlayedMachine& machine : machines) {
    const std::vector<std::vector<TraceRequest>> parts = {
        RowsOf("osc.csv", machine.max_request_tokens),
        std::vector<TraceRequest>(kRequestsOfPart, {.prompt_tokens = 1000, .output_tokens = 800}),
        RowsOf("azure_conv.csv", machine.max_request_tokens)};
    std::vector<std::string> alone;
    double alone_s = 0;
    for (const std::vector<TraceRequest>& part : parts) {
      const Fastest fastest = FastestOf(machine, Queue({part}));
      alone.push_back(fmt::format("{} {:.0f}", fastest.strategy, fastest.s));
      alone_s += fastest.s;
    }
    const Fastest fastest = FastestOf(machine, Queue(parts));
    const PlayedRun run = Play(machine, "auto", Queue(parts));
    const double auto_s = run.us / 1e6;
    const std::vector<std::string> goes_by = {ChangedOver(run, 0), ChangedOver(run, 1), ChangedOver(run, 2)};
    fmt::print("| {} | {}: {:.0f} | {} {:.0f} | {:.0f} | {} |\n", machine.name, fmt::join(alone, ", "),
               alone_s, fastest.strategy, fastest.s, auto_s, fmt::join(goes_by, ", "));
    EXPECT_LT(auto_s, alone_s / 0.97) << machine.name;
    EXPECT_LT(auto_s, fastest.s / 0.95) << machine.name;
  }
}

}  // namespace
}  // namespace tandem
