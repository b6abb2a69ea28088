#include "bench/online_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bench/bench_report.h"
#include "bench/engine_testing.h"
#include "bench/run_totals.h"

namespace tandem {
namespace {

using testing::HasSubstr;

std::unique_ptr<Engine> MakeOnlineEngine(int64_t max_num_queued_reqs = 1000, int64_t max_num_seqs = 256) {
  EngineOptions options = TestEngineOptions();
  options.max_num_queued_reqs = max_num_queued_reqs;
  options.max_num_seqs = max_num_seqs;
  return CreateTestEngine(options);
}

OnlinePlan MakePlan(int64_t num_requests, double rate, const char* workload = "synthetic:in=20,out=10") {
  OnlinePlanOptions options;
  options.workload = workload;
  options.num_requests = num_requests;
  options.arrivals = {.kind = ArrivalKind::kConstant, .rate = rate, .time_scale = {}};
  auto plan = PlanOnlineBench(options);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return std::move(plan).value();
}

BenchConditions MakeConditions(const Engine& engine, const OnlinePlan& plan) {
  BenchConditions conditions;
  conditions.mode = "online";
  conditions.engine = engine.options();
  conditions.online = OnlineConditions{.arrivals = plan.arrivals, .server = {}};
  return conditions;
}

double SinceStart(const BenchRun& run, Clock::time_point time) {
  return std::chrono::duration<double>(time - run.online->start).count();
}

TEST(OnlineBench, RequestsAreSentAtTheirTimes) {
  const auto engine = MakeOnlineEngine();
  const OnlinePlan plan = MakePlan(40, 200);
  const auto run = RunOnlineBench(engine.get(), plan, {.num_warmup = 3, .seed = 3, .show_progress = false});
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_EQ(run->records.size(), 40U);
  int64_t output_tokens = 0;
  for (size_t i = 0; i < 40; ++i) {
    const RequestRecord& record = run->records[i];
    EXPECT_TRUE(record.completed()) << record.error;
    EXPECT_NEAR(SinceStart(*run, record.start), plan.times_s[i], 1e-6) << "due, however late it was sent";
    EXPECT_GE(record.send_delay_ms, 0);
    EXPECT_GE(std::chrono::duration<double>(record.first_token - record.start).count(),
              record.send_delay_ms / 1e3);
    EXPECT_EQ(record.output_tokens, plan.workload.requests[i].output_tokens);
    output_tokens += record.output_tokens;
  }
  EXPECT_GE(run->duration_s, plan.times_s.back());
  EXPECT_GE(run->online->peak_concurrency, 1);
  const EngineStatsOfRun& stats = *run->engine;
  EXPECT_EQ(stats.after.generation_tokens - stats.before.generation_tokens,
            static_cast<uint64_t>(output_tokens))
      << "the warm-up is not in it";

  const nlohmann::ordered_json report = MakeBenchReport(MakeConditions(*engine, plan), *run, {});
  EXPECT_EQ(report["completed"], 40);
  EXPECT_EQ(report["rejected"], 0);
  EXPECT_EQ(report["rate"], 200.0);
  EXPECT_EQ(report["arrivals"], "constant");
  EXPECT_GE(report["send_delay_ms"]["p99"], report["send_delay_ms"]["mean"]);
  EXPECT_TRUE(report["client_cpu_share"].is_null()) << "tokens come on the engine's thread";
  EXPECT_TRUE(report["url"].is_null());
  EXPECT_GE(report["iterations"], plan.workload.requests[0].output_tokens) << "a token each";
  EXPECT_LE(report["iterations"], output_tokens + 40) << "and a prefill";
  EXPECT_THAT(FormatBenchTable(report), HasSubstr("req/s, constant"));
}

TEST(OnlineBench, AFullQueueRejectsAndTheOthersAreDone) {
  const auto engine = MakeOnlineEngine(4, 2);
  const OnlinePlan plan = MakePlan(60, std::numeric_limits<double>::infinity(), "synthetic:in=20,out=30");
  const auto run = RunOnlineBench(engine.get(), plan, {.show_progress = false});
  ASSERT_TRUE(run.ok()) << run.error().message;
  const RunTotals totals = AddUpRun(*run);
  EXPECT_GT(totals.rejected, 0);
  EXPECT_EQ(totals.failed, 0);
  EXPECT_EQ(totals.completed + totals.rejected, 60);
  const nlohmann::ordered_json report = MakeBenchReport(MakeConditions(*engine, plan), *run, {});
  EXPECT_EQ(report["rejected"], totals.rejected);
  ASSERT_EQ(report["errors"].size(), 1U);
  EXPECT_EQ(report["errors"][0]["rejected"], true);
  EXPECT_EQ(report["errors"][0]["count"], totals.rejected);
  EXPECT_EQ(report["rate"], "inf");
  EXPECT_THAT(FormatBenchTable(report), HasSubstr("rejected: the queue is full"));
}

TEST(OnlineBench, ALimitOfConcurrencyHolds) {
  const auto engine = MakeOnlineEngine();
  const OnlinePlan plan = MakePlan(30, std::numeric_limits<double>::infinity());
  const auto run = RunOnlineBench(engine.get(), plan, {.show_progress = false, .max_concurrency = 3});
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->online->peak_concurrency, 3);
  EXPECT_EQ(run->records.size(), 30U);
  for (size_t i = 3; i < 30; ++i) {
    const RequestRecord& record = run->records[i];
    EXPECT_TRUE(record.completed()) << record.error;
    // Sent when another one ended; that shows as its delay, and not as its latency.
    int64_t num_under_way = 0;
    for (size_t j = 0; j < i; ++j) num_under_way += run->records[j].last_token > record.start ? 1 : 0;
    EXPECT_LE(num_under_way, 2);
    EXPECT_NEAR(record.send_delay_ms / 1e3, SinceStart(*run, record.start), 1e-6);
  }
}

TEST(OnlineBench, WhatALimitKeepsBackIsNotSentAfterTheDuration) {
  const auto engine = MakeOnlineEngine();
  OnlinePlanOptions options;
  options.workload = "synthetic:in=20,out=30";
  options.num_requests = 5000;
  options.duration_s = 0.3;
  options.max_concurrency = 2;
  const auto plan = PlanOnlineBench(options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto run =
      RunOnlineBench(engine.get(), *plan, {.show_progress = false, .max_concurrency = 2, .duration_s = 0.3});
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_GT(run->online->num_unsent, 0);
  EXPECT_EQ(static_cast<int64_t>(run->records.size()) + run->online->num_unsent, 5000);
  for (const RequestRecord& record : run->records) {
    EXPECT_TRUE(record.completed()) << record.error;
    // What is due is sent a little later where the machine is busy.
    EXPECT_LT(SinceStart(*run, record.start), 1.3);
  }
}

TEST(OnlineBench, RequestsDueInTheWindowCount) {
  const auto engine = MakeOnlineEngine();
  const OnlinePlan plan = MakePlan(100, 100);
  const auto run =
      RunOnlineBench(engine.get(), plan, {.show_progress = false, .warm_up_s = 0.3, .cool_down_s = 0.2});
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->window.has_value());
  EXPECT_NEAR(run->window->seconds(), 0.5, 1e-6);
  const RunTotals totals = AddUpRun(*run);
  EXPECT_EQ(totals.counted, 50) << "due from 0.3 s on and before 0.8 s";
  EXPECT_EQ(totals.completed, 50);
  EXPECT_EQ(totals.e2el_ms.size(), 50U);
  EXPECT_EQ(totals.send_delay_ms.size(), 50U);
  // What arrived in the window is about what the engine made in it: half of the run. Its counters are read a
  // little later where the machine is busy.
  const auto output_tokens = static_cast<double>(totals.output_tokens);
  EXPECT_NEAR(
      static_cast<double>(run->engine->after.generation_tokens - run->engine->before.generation_tokens),
      output_tokens, 0.6 * output_tokens);
}

TEST(OnlineBench, EnergyIsThatOfTheWindow) {
  const auto engine = MakeOnlineEngine();
  EnergyMeter meter({.watts_per_core = 2, .rapl_folder = testing::TempDir() + "/no_powercap"});
  const auto run =
      RunOnlineBench(engine.get(), MakePlan(100, 100),
                     {.show_progress = false, .warm_up_s = 0.3, .cool_down_s = 0.2, .energy = &meter});
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->energy.has_value());
  const double after_j = run->energy->after.host_j.value_or(0);
  EXPECT_GT(after_j, run->energy->before.host_j.value_or(0));
  // It goes on behind the window.
  EXPECT_GT(meter.Read().host_j.value_or(0), after_j);
}

TEST(OnlineBench, ADeadlineEndsWhatTakesTooLong) {
  const auto engine = MakeOnlineEngine(4000, 1);
  const OnlinePlan plan = MakePlan(4000, std::numeric_limits<double>::infinity(), "synthetic:in=20,out=30");
  const auto run = RunOnlineBench(engine.get(), plan, {.show_progress = false, .deadline_s = 1});
  ASSERT_TRUE(run.ok()) << run.error().message;
  const RunTotals totals = AddUpRun(*run);
  EXPECT_GT(totals.failed, 0);
  EXPECT_GT(totals.completed, 0);
  EXPECT_EQ(totals.failed + totals.completed, 4000);
  EXPECT_EQ(run->records.back().error, "not done 1 s after it was due");
  EXPECT_EQ(engine->Stats().num_running + engine->Stats().num_waiting, 0);
}

TEST(OnlineBench, SessionsFindWhatTheirTurnsBeforeComputed) {
  EngineOptions engine_options = TestEngineOptions();
  engine_options.max_model_len = 512;
  engine_options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 4096};
  const auto engine = CreateTestEngine(engine_options);
  OnlinePlanOptions options;
  options.workload = "agents:sessions=5,system=100,turns=4,user=30,tool=30,out=20,pause=0.02";
  options.arrivals.rate = 50;
  options.max_model_len = 512;
  const auto plan = PlanOnlineBench(options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto run = RunOnlineBench(engine.get(), *plan, {.num_warmup = 2, .show_progress = false});
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_EQ(run->records.size(), 20U);
  for (const RequestRecord& record : run->records) {
    EXPECT_TRUE(record.completed()) << record.error;
    EXPECT_EQ(record.possible_hit_tokens.value_or(-1) % 32, 0);
    if (record.turn->number > 0) {
      // There is room for all: what the turn before left is found, whole blocks of it.
      EXPECT_EQ(record.cached_tokens, record.possible_hit_tokens);
      EXPECT_GE(*record.possible_hit_tokens, 128);
      EXPECT_EQ(record.shared_tokens, 96) << "whole blocks of the system prompt";
    }
  }
  const nlohmann::ordered_json report = MakeBenchReport(MakeConditions(*engine, *plan), *run, {});
  EXPECT_EQ(report["sessions"]["begun"], 5);
  EXPECT_EQ(report["sessions"]["finished"], 5);
  EXPECT_GE(report["prefix_hits"]["share_of_possible"], 0.94);
  const EngineStatsOfRun& stats = *run->engine;
  EXPECT_EQ(report["prefix_hits"]["tokens"], stats.after.prefix_hit_tokens - stats.before.prefix_hit_tokens);
  const std::string table = FormatBenchTable(report);
  EXPECT_THAT(table, HasSubstr("whole turn"));
  EXPECT_THAT(table, HasSubstr("of the possible"));
}

TEST(OnlineBench, FlagsThatLeaveNothingToCountAreErrors) {
  const auto engine = MakeOnlineEngine();
  const auto error = [&](const OnlinePlan& plan, const OnlineBenchOptions& options) {
    const auto run = RunOnlineBench(engine.get(), plan, options);
    EXPECT_FALSE(run.ok());
    return run.ok() ? Error{} : run.error();
  };
  const Error too_long =
      error(MakePlan(10, 10), {.show_progress = false, .warm_up_s = 0.5, .cool_down_s = 0.5});
  EXPECT_EQ(too_long.param, "warm-up");
  EXPECT_THAT(too_long.message, HasSubstr("leave nothing of the 1.000 s"));
  const Error no_end =
      error(MakePlan(10, 10), {.show_progress = false, .max_concurrency = 1, .cool_down_s = 0.1});
  EXPECT_EQ(no_end.param, "cool-down");
  EXPECT_THAT(no_end.message, HasSubstr("needs a --duration"));
}

TEST(OnlineBench, NoCompletedRequestIsAnError) {
  const auto engine = MakeOnlineEngine(0);
  const auto run = RunOnlineBench(engine.get(), MakePlan(3, 100), {.show_progress = false});
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(run.error().message,
              HasSubstr("0 failed and 3 were rejected in all, the first because: the queue "
                        "is full"));
}

}  // namespace
}  // namespace tandem
