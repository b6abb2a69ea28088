// What moving each constant of planning by a factor of two does to whole workloads, by predicted times.
// Prints the table that docs/planner_tuning.md has.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/nightly_testing.h"
#include "base/sanitizers.h"
#include "perf/analytic_costs.h"
#include "policy/asymmetric.h"
#include "policy/async.h"
#include "policy/auto.h"
#include "policy/full_offload.h"
#include "simulate/plan_workloads_testing.h"

namespace tandem::testing {
namespace {

struct Constant {
  std::string_view name;
  std::function<void(PlannerTuning*, double factor)> move;
};

Constant Times(std::string_view name, double PlannerTuning::*field) {
  return {name, [field](PlannerTuning* tuning, double factor) { tuning->*field *= factor; }};
}

Constant Times(std::string_view name, int64_t PlannerTuning::*field) {
  return {name, [field](PlannerTuning* tuning, double factor) {
            const double moved = static_cast<double>(tuning->*field) * factor;
            tuning->*field = std::max<int64_t>(1, std::llround(moved));
          }};
}

Constant Times(std::string_view name, std::array<double, 4> PlannerTuning::*field) {
  return {name, [field](PlannerTuning* tuning, double factor) {
            for (double& share : tuning->*field) share *= factor;
          }};
}

// Of a ratio near one: its distance from one.
Constant DistanceFromOne(std::string_view name, double PlannerTuning::*field) {
  return {name, [field](PlannerTuning* tuning, double factor) {
            tuning->*field = 1 + (tuning->*field - 1) * factor;
          }};
}

std::vector<Constant> Constants() {
  using T = PlannerTuning;
  return {DistanceFromOne("next_rows", &T::next_rows),
          DistanceFromOne("nearly_best", &T::nearly_best),
          DistanceFromOne("kept_of_present", &T::kept_of_present),
          DistanceFromOne("worth_splitting", &T::worth_splitting),
          Times("mostly_there", &T::mostly_there),
          DistanceFromOne("worth_riding", &T::worth_riding),
          Times("price_of_filling", &T::price_of_filling),
          DistanceFromOne("most_filled_in", &T::most_filled_in),
          Times("less_to_go_on", &T::less_to_go_on),
          DistanceFromOne("worth_going_on", &T::worth_going_on),
          DistanceFromOne("worth_offloading_all", &T::worth_offloading_all),
          Times("few_gpu_rows", &T::few_gpu_rows),
          DistanceFromOne("overfill", &T::overfill),
          DistanceFromOne("riding_spare", &T::riding_spare),
          Times("look_ahead", &T::look_ahead),
          Times("most_passed_over", &T::most_passed_over),
          Times("most_that_pass", &T::most_that_pass),
          Times("iterations_ahead", &T::iterations_ahead),
          Times("overload_slack", &T::overload_slack),
          Times("most_kept_of_tier", &T::most_kept_of_tier),
          Times("copied_down_of_tier", &T::copied_down_of_tier),
          Times("copied_down_requests", &T::copied_down_requests),
          Times("copied_down_from_share", &T::copied_down_from_share),
          Times("copied_down_one_in", &T::copied_down_one_in),
          Times("copied_down_of_layer", &T::copied_down_of_layer),
          DistanceFromOne("work_shape_memory", &T::work_shape_memory),
          Times("first_prompt_tokens_per_output", &T::first_prompt_tokens_per_output),
          Times("ended_to_know", &T::ended_to_know),
          Times("ended_to_return", &T::ended_to_return),
          Times("least_prefill_worth", &T::least_prefill_worth),
          DistanceFromOne("wanted_prefill_worth", &T::wanted_prefill_worth),
          Times("further_prefill_worth", &T::further_prefill_worth),
          Times("cpu_ramp_iterations", &T::cpu_ramp_iterations),
          Times("riding_ramp_iterations", &T::riding_ramp_iterations),
          Times("most_ramp_share", &T::most_ramp_share),
          Times("least_ramp_tokens", &T::least_ramp_tokens),
          Times("gpu_ramp_for_room", &T::gpu_ramp_for_room),
          Times("gpu_ramp_for_prefill_share", &T::gpu_ramp_for_prefill_share),
          Times("fewest_gpu_ramp_iterations", &T::fewest_gpu_ramp_iterations),
          Times("most_gpu_ramp_iterations", &T::most_gpu_ramp_iterations),
          Times("gpu_ramp_alone", &T::gpu_ramp_alone),
          Times("ample_room", &T::ample_room),
          Times("most_rows_kept", &T::most_rows_kept),
          Times("cohorts_everywhere", &T::cohorts_everywhere),
          Times("fewest_cohort_rows", &T::fewest_cohort_rows),
          Times("max_skips", &T::max_skips),
          Times("num_cuts", &T::num_cuts),
          Times("transit_stretch", &T::transit_stretch),
          Times("transit_alone_us", &T::transit_alone_us),
          Times("most_rows_in_transit", &T::most_rows_in_transit),
          Times("budget_shares", &T::budget_shares),
          Times("limited_budget_shares", &T::limited_budget_shares),
          DistanceFromOne("about_flat", &T::about_flat),
          DistanceFromOne("about_the_same_time", &T::about_the_same_time)};
}

ScheduleLimits Limits(int64_t max_rider_rows, double max_iteration_us = 0) {
  return {.max_num_seqs = 512,
          .max_num_batched_tokens = 2048,
          .num_layers = 32,
          .max_transit_tokens = 4096,
          .max_cohort_rows = 512,
          .max_rider_rows = max_rider_rows,
          .max_iteration_us = max_iteration_us};
}

// Classes of machines as in docs/scheduling.md: an A10G (26,400 tokens in the gpu tier), a T4 (2,240).
std::vector<PlannedWorkload> Workloads() {
  const AnalyticCosts a10g = SmallSliceCosts(15, 170);
  const AnalyticCosts slow_cpu = SmallSliceCosts(30, 110);
  const AnalyticCosts t4 = TinySliceCosts(30, 110);
  std::vector<PlannedWorkload> all = {
      {"asymmetric 1000/200", "asymmetric", a10g, true, 26'400, 600'000, Limits(0), 200, 1000, 200, 90},
      {"asymmetric 1000/50", "asymmetric", slow_cpu, true, 26'400, 600'000, Limits(0), 200, 1000, 50, 50},
      {"async 1000/400", "async", slow_cpu, true, 26'400, 600'000, Limits(256), 300, 1000, 400, 50},
      {"auto 370/100, T4", "auto", t4, true, 2'240, 150'000, Limits(256), 200, 370, 100, 50},
      {"auto 370/45, T4, 30 ms", "auto", t4, true, 2'240, 150'000, Limits(256, 30'000), 200, 370, 45, 90},
      {"full-offload 370/100, T4", "full-offload", t4, true, 2'240, 150'000, Limits(0), 200, 370, 100, 90}};
  for (PlannedWorkload& workload : all) workload.max_iterations = 1'000'000;
  return all;
}

// Predicted microseconds from the first request to the end of the last.
template <typename S>
double PlayedUs(const PlannedWorkload& workload, const std::function<void(PlannerTuning*)>& move) {
  S strategy(&workload.costs);
  move(&strategy.tuning());
  PlayedWorkload played(workload, strategy.tuning());
  while (played.Next()) {
    const Status status = played.simulation().Step(&strategy);
    if (!status.ok()) {
      ADD_FAILURE() << workload.name << ": " << status.error().message;
      return 0;
    }
  }
  EXPECT_EQ(played.simulation().num_finished(), workload.num_requests);
  return played.simulation().counts().us;
}

double PlayedUs(const PlannedWorkload& workload, const std::function<void(PlannerTuning*)>& move) {
  if (workload.strategy == "asymmetric") return PlayedUs<AsymmetricStrategy>(workload, move);
  if (workload.strategy == "async") return PlayedUs<AsyncStrategy>(workload, move);
  if (workload.strategy == "full-offload") return PlayedUs<FullOffloadStrategy>(workload, move);
  return PlayedUs<AutoStrategy>(workload, move);
}

// The lines of the table in a file.
std::string TableIn(const std::string& path) {
  std::ifstream in(path);
  std::string table;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("|")) table += line + "\n";
  }
  return table;
}

TEST(PlannerTuning, NoConstantIsWorthMovingByAFactorOfTwo) {
  if (kSanitized || !IsNightly())
    GTEST_SKIP() << "plays whole workloads hundreds of times; TANDEM_NIGHTLY=1 runs it";
  const std::vector<PlannedWorkload> workloads = Workloads();
  std::string table = "| constant |";
  std::string rule = "|---|";
  std::vector<double> usual_us;
  for (const PlannedWorkload& workload : workloads) {
    usual_us.push_back(PlayedUs(workload, [](PlannerTuning*) {}));
    table += fmt::format(" {} |", workload.name);
    rule += "---|";
  }
  table += "\n" + rule + "\n";
  for (const Constant& constant : Constants()) {
    table += fmt::format("| `{}` |", constant.name);
    double gain[2] = {0, 0};
    for (size_t i = 0; i < workloads.size(); ++i) {
      double percent[2];  // rounded as it is printed
      for (const int doubled : {0, 1}) {
        const double us = PlayedUs(
            workloads[i], [&](PlannerTuning* tuning) { constant.move(tuning, doubled == 1 ? 2.0 : 0.5); });
        percent[doubled] = std::round(1000 * (usual_us[i] / us - 1)) / 10 + 0.0;
        gain[doubled] += percent[doubled] / static_cast<double>(workloads.size());
      }
      table += fmt::format(" {:+.1f} / {:+.1f} |", percent[0], percent[1]);
    }
    table += "\n";
    EXPECT_LT(std::max(gain[0], gain[1]), 1.0) << constant.name << " is mistuned";
  }
  fmt::print("{}", table);
  EXPECT_EQ(TableIn(TANDEM_SOURCE_DIR "/docs/planner_tuning.md"), table) << "docs/planner_tuning.md is stale";
}

}  // namespace
}  // namespace tandem::testing
