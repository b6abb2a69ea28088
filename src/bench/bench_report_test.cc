#include "bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/request_recorder.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;
using testing::HasSubstr;

// Three requests: tokens at 100, 110, 130 ms; one token at 200 ms; one that fails after a token.
BenchRun MakeRun() {
  const Clock::time_point start = Clock::now();
  RequestRecorder recorder({{.prompt_tokens = 10, .output_tokens = 3, .arrival_s = {}},
                            {.prompt_tokens = 20, .output_tokens = 1, .arrival_s = {}},
                            {.prompt_tokens = 40, .output_tokens = 5, .arrival_s = {}}});
  for (int64_t i = 0; i < 3; ++i) recorder.Start(i, start);
  recorder.AddTokens(0, 1, start + milliseconds(100));
  recorder.AddTokens(0, 1, start + milliseconds(110));
  recorder.AddTokens(0, 1, start + milliseconds(130));
  recorder.End(0, "");
  recorder.AddTokens(1, 1, start + milliseconds(200));
  recorder.End(1, "");
  recorder.AddTokens(2, 1, start + milliseconds(50));
  recorder.End(2, "out of paper");
  BenchRun run;
  const auto progress = recorder.WaitFor(milliseconds(0));
  EXPECT_EQ(progress.ended, 3);
  EXPECT_EQ(progress.failed, 1);
  EXPECT_EQ(progress.output_tokens, 5);
  run.records = recorder.TakeRecords();
  run.duration_s = 0.2;
  EngineStats before;
  before.iterations = 100;
  before.preemptions = 1;
  before.gpu_busy_seconds = 5.0;
  before.strategy_iterations = {{"gpu-only", 99}, {"async", 1}};
  before.iteration.AddUs(1e6);
  before.schedule.AddUs(1e3);
  EngineStats after = before;
  after.iterations = 110;
  after.preemptions = 4;
  after.gpu_busy_seconds = 5.15;
  after.strategy_iterations["gpu-only"] = 109;
  for (int i = 0; i < 9; ++i) after.iteration.AddUs(10e3);
  after.iteration.AddUs(60e3);
  for (int i = 0; i < 10; ++i) after.schedule.AddUs(50);
  after.gpu_blocks_total = 8;
  after.cpu_blocks_total = 2;
  after.block_size = 32;
  run.engine = {.before = before, .after = after};
  return run;
}

BenchConditions MakeConditions() {
  BenchConditions conditions;
  conditions.mode = "offline";
  conditions.command = "tandem bench offline m";
  conditions.workload = "osc";
  conditions.num_dropped = 2;
  conditions.engine.served_model_name = "m";
  conditions.engine.strategy = "gpu-only";
  conditions.engine.max_model_len = 4096;
  return conditions;
}

TEST(BenchReport, CountsCompletedRequests) {
  const ordered_json report = MakeBenchReport(MakeConditions(), MakeRun(), {{"cpu", "x"}});
  EXPECT_EQ(report["num_requests"], 3);
  EXPECT_EQ(report["completed"], 2);
  EXPECT_EQ(report["failed"], 1);
  EXPECT_EQ(report["errors"], ordered_json::array({{{"message", "out of paper"}, {"count", 1}}}));
  EXPECT_EQ(report["dropped"], 2);
  EXPECT_EQ(report["total_input_tokens"], 30);
  EXPECT_EQ(report["total_output_tokens"], 4);
  EXPECT_DOUBLE_EQ(report["request_throughput"], 10);
  EXPECT_DOUBLE_EQ(report["output_throughput"], 20);
  EXPECT_DOUBLE_EQ(report["total_token_throughput"], 170);
  EXPECT_EQ(report["machine"]["cpu"], "x");
  EXPECT_EQ(report["command"], "tandem bench offline m");
}

TEST(BenchReport, LatenciesAreVllms) {
  const ordered_json report = MakeBenchReport(MakeConditions(), MakeRun(), {});
  EXPECT_NEAR(report["mean_ttft_ms"], 150, 1e-3);
  EXPECT_NEAR(report["p90_ttft_ms"], 190, 1e-3);
  EXPECT_NEAR(report["mean_tpot_ms"], 15, 1e-3);
  EXPECT_NEAR(report["mean_itl_ms"], 15, 1e-3);
  EXPECT_NEAR(report["p99_itl_ms"], 19.9, 1e-3);
  EXPECT_NEAR(report["median_e2el_ms"], 165, 1e-3);
  EXPECT_NEAR(report["mean_per_token_latency_s"], (0.130 / 3 + 0.200) / 2, 1e-6);
}

TEST(BenchReport, EngineFieldsAreThoseOfTheRunAlone) {
  const ordered_json report = MakeBenchReport(MakeConditions(), MakeRun(), {});
  EXPECT_EQ(report["strategy_iterations"], ordered_json({{"gpu-only", 10}}));
  EXPECT_EQ(report["preemptions"], 3);
  EXPECT_EQ(report["gpu_kv_tokens"], 256);
  EXPECT_EQ(report["cpu_kv_tokens"], 64);
  EXPECT_NEAR(report["iteration_ms"]["mean"], 15, 1e-6);
  EXPECT_NEAR(report["iteration_ms"]["p50"], 10, 0.4);
  EXPECT_NEAR(report["iteration_ms"]["p99"], 60, 2.4);
  EXPECT_NEAR(report["schedule_us"]["mean"], 50, 1e-6);
  EXPECT_NEAR(report["gpu_busy"], 0.75, 1e-9);
  EXPECT_TRUE(report["cpu_attention_busy"].is_null());
}

TEST(BenchReport, WhatNothingMeasuredIsNull) {
  BenchRun run = MakeRun();
  run.engine.reset();
  run.records.resize(0);
  const ordered_json report = MakeBenchReport(MakeConditions(), run, {});
  for (const char* field :
       {"gpu_busy", "cpu_attention_busy", "swapped_tokens", "upper_bound_throughput", "strategy_iterations",
        "gpu_kv_tokens", "preemptions", "mean_ttft_ms", "p99_itl_ms", "mean_per_token_latency_s"}) {
    ASSERT_TRUE(report.contains(field)) << field;
    EXPECT_TRUE(report[field].is_null()) << field;
  }
  EXPECT_TRUE(report["iteration_ms"]["p99"].is_null());
}

TEST(BenchReport, TheTableSaysWhatWasLeftOutAndWhatFailed) {
  const std::string table = FormatBenchTable(MakeBenchReport(MakeConditions(), MakeRun(), {}));
  EXPECT_THAT(table,
              HasSubstr("osc, offline, m on host: 2 of 3 requests in 0.20 s; 2 longer than the context of "
                        "4096 tokens were left out"));
  EXPECT_THAT(table, HasSubstr("1 failed: out of paper"));
  EXPECT_THAT(table, HasSubstr("20.0 tok/s"));
}

TEST(RequestRecorder, AnotherNumberOfTokensThanWantedIsAFailure) {
  RequestRecorder recorder({{.prompt_tokens = 1, .output_tokens = 2, .arrival_s = {}}});
  recorder.Start(0, Clock::now());
  recorder.AddTokens(0, 3, Clock::now());
  recorder.End(0, "");
  const std::vector<RequestRecord> records = recorder.TakeRecords();
  EXPECT_FALSE(records[0].completed());
  EXPECT_EQ(records[0].error, "3 output tokens instead of 2");
  EXPECT_EQ(records[0].inter_token_ms.size(), 2U);
}

}  // namespace
}  // namespace tandem
