// Judges the strategies on work that no constant was tuned on: the held-out rows of the traces
// (traces/trace_split.h) and lengths that no other test plays, on three machines, by predicted times. The
// table that it prints is in docs/held_out.md. A constant that is changed for
// what is seen here has been tuned on it: then other rows have to be held out.
//
// TANDEM_NIGHTLY=1 plays four times as many requests.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/nightly_testing.h"
#include "base/sanitizers.h"
#include "perf/analytic_costs.h"
#include "perf/steady_times.h"
#include "perf/time_model.h"
#include "planning/operating_point.h"
#include "policy/strategy.h"
#include "simulate/ideal_throughput_testing.h"
#include "simulate/whole_run_testing.h"
#include "traces/embedded_traces.h"
#include "traces/trace_csv.h"
#include "traces/trace_split.h"

namespace tandem {
namespace {

using testing::PlayedMachine;

// The first two as in docs/scheduling.md, with the CPU rates that were measured beside them. No constant
// knows the third.
std::vector<PlayedMachine> JudgedMachines() {
  return {{"A10G class", SmallSliceCosts(30, 110), 26'400, 600'000, 8'192},
          {"T4 class", TinySliceCosts(30, 110), 2'240, 150'000, 2'048},
          {"L4 class", testing::SlowMemoryCosts(), 46'000, 400'000, 8'192}};
}

struct JudgedWorkload {
  std::string_view name;
  std::vector<TraceRequest> requests;
};

std::vector<TraceRequest> HeldOutRows(std::string_view file_name) {
  for (const EmbeddedTrace& trace : EmbeddedTraces()) {
    if (trace.file_name != file_name) continue;
    const std::vector<TraceRequest> rows = ParseTraceCsv(trace.content, std::string(file_name)).value();
    const std::span<const TraceRequest> held_out = HeldOutPart(rows);
    return {held_out.begin(), held_out.end()};
  }
  ADD_FAILURE() << file_name << " is not embedded";
  return {};
}

// Log-normal lengths, which no other test has: most requests are short, a few are very long.
std::vector<TraceRequest> LogNormalRows(double mean_prompt, double mean_output, uint32_t seed) {
  constexpr double kSigma = 0.7;
  constexpr int kNumRows = 4'000;
  std::mt19937 random(seed);
  const auto draw = [&](double mean) {
    // Box and Muller: the same numbers with every standard library.
    constexpr double kUnit = 0x1p-32;
    const double u = (static_cast<double>(random()) + 0.5) * kUnit;
    const double v = static_cast<double>(random()) * kUnit;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
    return std::max<int64_t>(2, std::llround(mean * std::exp(kSigma * normal - kSigma * kSigma / 2)));
  };
  std::vector<TraceRequest> rows(kNumRows);
  for (TraceRequest& row : rows) {
    row.prompt_tokens = draw(mean_prompt);
    row.output_tokens = draw(mean_output);
  }
  return rows;
}

std::vector<JudgedWorkload> JudgedWorkloads() {
  return {{"azure_code", HeldOutRows("azure_code.csv")},
          {"azure_conv", HeldOutRows("azure_conv.csv")},
          {"osc", HeldOutRows("osc.csv")},
          {"630/270", LogNormalRows(630, 270, 3)},
          {"190/530", LogNormalRows(190, 530, 4)}};
}

// The first `count` of those that the machine can serve.
std::vector<TraceRequest> Fitting(const std::vector<TraceRequest>& rows, const PlayedMachine& machine,
                                  size_t count) {
  std::vector<TraceRequest> fitting;
  for (const TraceRequest& row : rows) {
    if (fitting.size() == count) break;
    if (row.prompt_tokens + row.output_tokens <= machine.max_request_tokens) fitting.push_back(row);
  }
  return fitting;
}

IdealMix IdealMixOf(const PlayedMachine& machine, const std::vector<TraceRequest>& requests) {
  const TimeModel time(machine.costs);
  IdealMix mix;
  double prompts = 0;
  double outputs = 0;
  for (const TraceRequest& request : requests) {
    const auto output_tokens = static_cast<double>(request.output_tokens);
    prompts += static_cast<double>(request.prompt_tokens);
    outputs += output_tokens;
    mix.mean_context += output_tokens * (static_cast<double>(request.prompt_tokens) + output_tokens / 2);
    mix.prompt_attention_us += time.PromptAttentionUs(request.prompt_tokens, 0);
  }
  mix.prompt_tokens_per_output = prompts / outputs;
  mix.mean_context /= outputs;
  mix.prompt_attention_us /= outputs;
  return mix;
}

// Of a steady state, over that of gpu-only.
double PromisedOfFullOffload(const PlayedMachine& machine, const IdealMix& mix,
                             const std::vector<TraceRequest>& requests) {
  double prompts = 0;
  for (const TraceRequest& request : requests) prompts += static_cast<double>(request.prompt_tokens);
  SteadyWork work{{.prompt_tokens_per_output = mix.prompt_tokens_per_output,
                   .mean_context = mix.mean_context,
                   .mean_prompt = prompts / static_cast<double>(requests.size()),
                   .gpu_rows = static_cast<double>(machine.gpu_tokens) / mix.mean_context}};
  const double gpu_only = SteadyRate(work, 0, Overlap::kAsymmetric, machine.costs);
  work.gpu_rows = 0;
  double best = 0;
  const double max_rows = std::min(512.0, static_cast<double>(machine.cpu_tokens) / mix.mean_context);
  for (double rows = 1; rows <= max_rows; rows *= 1.1)
    best = std::max(best, SteadyRate(work, rows, Overlap::kAsymmetric, machine.costs));
  return best / gpu_only;
}

constexpr std::array<std::string_view, 8> kJudgedStrategies = {
    "gpu-only", "asymmetric", "async", "apex", "auto", "full-offload", "symmetric", "simple-offload"};

struct Judged {
  std::string case_name;
  double ideal = 0;  // output tokens a second
  // By strategy, relative to gpu-only.
  std::map<std::string_view, double> gain;
  double gpu_only = 0;  // output tokens a second
  // What the cost model promises of a steady state in which all decode in the cpu tier, over gpu-only.
  double promised_full_offload = 0;

  double share_of_ideal(std::string_view strategy) const { return gain.at(strategy) * gpu_only / ideal; }
  // The best of those that are not `auto`.
  double best_gain() const {
    double best = 0;
    for (const auto& [strategy, value] : gain) {
      if (strategy != "auto") best = std::max(best, value);
    }
    return best;
  }
};

Judged Judge(const PlayedMachine& machine, const JudgedWorkload& workload, size_t num_requests) {
  const std::vector<TraceRequest> requests = Fitting(workload.requests, machine, num_requests);
  EXPECT_GE(requests.size(), std::min<size_t>(num_requests, 240)) << "hardly any fits " << machine.name;
  Judged judged{.case_name = fmt::format("{}, {}", machine.name, workload.name)};
  const IdealMix mix = IdealMixOf(machine, requests);
  judged.ideal = testing::IdealThroughput(mix, machine.costs, machine.gpu_tokens, machine.cpu_tokens);
  judged.promised_full_offload = PromisedOfFullOffload(machine, mix, requests);
  for (const std::string_view strategy : kJudgedStrategies) {
    const double throughput = testing::WholeRunThroughput(strategy, machine, requests, judged.case_name);
    if (strategy == "gpu-only") judged.gpu_only = throughput;
    judged.gain[strategy] = throughput / judged.gpu_only;
  }
  return judged;
}

std::string TableHead() {
  return "| machine, requests | gpu-only, tok/s | asymmetric | async | apex | auto | full-offload | "
         "symmetric | "
         "simple-offload | ideal | auto / best other |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
}

std::string TableRow(const Judged& judged) {
  std::string row = fmt::format("| {} | {:.1f} |", judged.case_name, judged.gpu_only);
  for (const std::string_view strategy : kJudgedStrategies) {
    if (strategy != "gpu-only") row += fmt::format(" {:.3f} |", judged.gain.at(strategy));
  }
  return row + fmt::format(" {:.2f} | {:.3f} |\n", judged.ideal / judged.gpu_only,
                           judged.gain.at("auto") / judged.best_gain());
}

// Of what each case must reach: at least today's value less a little, so that it can only get better. Others
// than these hold for all cases alike.
struct JudgedLimits {
  std::string_view case_name;
  double auto_of_ideal;  // less 0.03
  double async_gain = 0.97;
};

constexpr JudgedLimits kLimits[] = {
    {"A10G class, azure_code", 0.92}, {"A10G class, azure_conv", 0.835}, {"A10G class, osc", 0.90},
    {"A10G class, 630/270", 0.80},    {"A10G class, 190/530", 0.72},     {"T4 class, azure_code", 0.825},
    {"T4 class, azure_conv", 0.66},   {"T4 class, osc", 0.825},          {"T4 class, 630/270", 0.78},
    {"T4 class, 190/530", 0.77},      {"L4 class, azure_code", 0.75},    {"L4 class, azure_conv", 0.48},
    {"L4 class, osc", 0.715},         {"L4 class, 630/270", 0.415},      {"L4 class, 190/530", 0.41}};

JudgedLimits LimitsOf(const std::string& case_name) {
  for (const JudgedLimits& limits : kLimits) {
    if (limits.case_name == case_name) return limits;
  }
  ADD_FAILURE() << "no limits for " << case_name;
  return {};
}

// Rules that hold whatever the constants are.
void ExpectOrder(const Judged& judged) {
  for (const auto& [strategy, gain] : judged.gain)
    EXPECT_LE(judged.share_of_ideal(strategy), 1.0) << strategy << " beats what nothing beats";
  // Each could do what the next one does: a cut anywhere, a cut in halves, none. Of a run that ends the last
  // requests decide over a few percent.
  constexpr double kEnd = 0.95;
  EXPECT_GE(judged.gain.at("asymmetric"), kEnd * judged.gain.at("full-offload"));
  EXPECT_GE(judged.gain.at("full-offload"), kEnd * judged.gain.at("symmetric"));
  EXPECT_GE(judged.gain.at("symmetric"), kEnd * judged.gain.at("simple-offload"));
  // Where the cost model promises a gain of offloading all that is larger than what ramp and end can cost, it
  // is there.
  constexpr double kClearly = 1.2;
  if (judged.promised_full_offload > kClearly) {
    EXPECT_GE(judged.gain.at("full-offload"), judged.promised_full_offload);
  }
}

// Those that may leave the cpu tier alone must do so where it does not pay; `auto` is never far from the
// best.
void ExpectGoodChoices(const Judged& judged, double async_gain) {
  constexpr double kNoWorse = 0.97;
  for (const std::string_view strategy : {"asymmetric", "apex", "auto"})
    EXPECT_GE(judged.gain.at(strategy), kNoWorse) << strategy << " loses to gpu-only";
  EXPECT_GE(judged.gain.at("async"), async_gain) << "async loses to gpu-only";
  EXPECT_GE(judged.gain.at("auto"), 0.9 * judged.best_gain());
}

// All lines of a table in the page.
std::string HeldOutTable() {
  std::ifstream in(TANDEM_SOURCE_DIR "/docs/held_out.md");
  std::string table;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("|")) table += line + "\n";
  }
  return table;
}

TEST(HeldOutTest, AutoIsNearTheBestAndHybridsDoNotLose) {
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  constexpr size_t kNumRequests = 240;
  std::string table = TableHead();
  int num_promised = 0;
  for (const PlayedMachine& machine : JudgedMachines()) {
    for (const JudgedWorkload& workload : JudgedWorkloads()) {
      const Judged judged = Judge(machine, workload, kNumRequests);
      SCOPED_TRACE(judged.case_name);
      table += TableRow(judged);
      const JudgedLimits limits = LimitsOf(judged.case_name);
      ExpectOrder(judged);
      ExpectGoodChoices(judged, limits.async_gain);
      EXPECT_GE(judged.share_of_ideal("auto"), limits.auto_of_ideal);
      if (judged.promised_full_offload > 1.2) ++num_promised;
    }
  }
  EXPECT_GE(num_promised, 3) << "the rule about what the cost model promises is hardly looked at";
  fmt::print("{}", table);
  EXPECT_EQ(HeldOutTable(), table) << "docs/held_out.md is stale";
}

// Ramp and end, which take their part of few requests, are next to nothing here.
TEST(HeldOutTest, NightlyTheSameOfManyRequests) {
  if (!IsNightly()) GTEST_SKIP() << "takes a minute; TANDEM_NIGHTLY=1 runs it";
  if (kSanitized) GTEST_SKIP() << "plays whole workloads";
  constexpr size_t kNumRequests = 1'000;
  std::string table = TableHead();
  for (const PlayedMachine& machine : JudgedMachines()) {
    for (const JudgedWorkload& workload : JudgedWorkloads()) {
      const Judged judged = Judge(machine, workload, kNumRequests);
      SCOPED_TRACE(judged.case_name);
      table += TableRow(judged);
      ExpectOrder(judged);
      constexpr double kNoWorse = 0.97;
      ExpectGoodChoices(judged, kNoWorse);
    }
  }
  fmt::print("{}", table);
}

}  // namespace
}  // namespace tandem
