#include "bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
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
  recorder.AddTokens(0, 1, false, start + milliseconds(100));
  recorder.AddTokens(0, 1, false, start + milliseconds(110));
  recorder.AddTokens(0, 1, false, start + milliseconds(130));
  recorder.End(0, "");
  recorder.AddTokens(1, 1, false, start + milliseconds(200));
  recorder.End(1, "");
  recorder.AddTokens(2, 1, false, start + milliseconds(50));
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
  before.prefix_queried_tokens = 100;
  before.prefix_hit_tokens = 90;
  before.recomputed_tokens = 5;
  before.gpu_busy_seconds = 5.0;
  before.strategy_iterations = {{"gpu-only", 99}, {"async", 1}};
  before.iteration.AddUs(1e6);
  before.schedule.AddUs(1e3);
  EngineStats after = before;
  after.iterations = 110;
  after.preemptions = 4;
  after.prefix_queried_tokens = 300;
  after.prefix_hit_tokens = 140;
  after.recomputed_tokens = 12;
  after.gpu_busy_seconds = 5.15;
  after.strategy_iterations["gpu-only"] = 109;
  before.strategies["asymmetric"] = {
      .num_choices = 3, .seconds = 2, .promised_tokens = 900, .made_tokens = 800};
  after.strategies["asymmetric"] = {
      .num_choices = 4, .seconds = 4, .promised_tokens = 1300, .made_tokens = 1000};
  before.strategies["async"] = after.strategies["async"] = {.num_choices = 1, .seconds = 1};
  after.iteration_factors = {1.25, 1, 0.5};
  after.cpu_attention_factor = 2;
  after.gpu_beside_cpu_attention_factor = 1.5;
  after.hand_over_us = 25;
  for (int i = 0; i < 9; ++i) after.iteration.AddUs(10e3);
  after.iteration.AddUs(60e3);
  for (int i = 0; i < 10; ++i) after.schedule.AddUs(50);
  before.generation_tokens = 1000;
  after.generation_tokens = 1040;
  before.prompt_tokens = 7;
  after.prompt_tokens = 207;
  before.cpu_tier_tokens = 3;
  after.cpu_tier_tokens = 18;
  before.swapped_tokens = 64;
  after.swapped_tokens = 96;
  before.cpu_attention_busy_seconds = 1.0;
  after.cpu_attention_busy_seconds = 1.05;
  before.cpu_attention_kv_bytes = 1'000'000'000;
  after.cpu_attention_kv_bytes = 6'000'000'000;
  after.cpu_attention_attended_kv_bytes = 7'500'000'000;
  before.predicted_seconds = 10;
  after.predicted_seconds = 10.2;
  before.prediction_error_seconds = 5;
  after.prediction_error_seconds = 5.01;
  before.rider_visits = 10;
  after.rider_visits = 50;
  before.rider_skips = 2;
  after.rider_skips = 5;
  after.max_cpu_kv_tokens = 48;
  after.gpu_blocks_total = 8;
  after.cpu_blocks_total = 2;
  after.block_size = 32;
  run.engine = {.before = before, .after = after};
  run.kv_bytes_per_token = 1'000'000;
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
  EXPECT_EQ(report["strategies"], ordered_json({{"asymmetric",
                                                 {{"seconds", 2.0},
                                                  {"promised_throughput", 200.0},
                                                  {"made_throughput", 100.0},
                                                  {"num_choices", 1}}}}))
      << "those that were gone by in the run";
  EXPECT_EQ(report["hand_over_us"], 25);
  EXPECT_EQ(report["cost_factors"], ordered_json({{"gpu-only", 1.25},
                                                  {"asymmetric", 1.0},
                                                  {"async", 0.5},
                                                  {"cpu_attention", 2.0},
                                                  {"gpu_beside_cpu_attention", 1.5}}));
  EXPECT_EQ(report["preemptions"], 3);
  EXPECT_EQ(report["recomputed_tokens"], 7);
  EXPECT_EQ(report["prefix_hit_rate"], 0.25);
  EXPECT_EQ(report["gpu_kv_tokens"], 256);
  EXPECT_EQ(report["cpu_kv_tokens"], 64);
  EXPECT_NEAR(report["iteration_ms"]["mean"], 15, 1e-6);
  EXPECT_NEAR(report["iteration_ms"]["p50"], 10, 0.4);
  EXPECT_NEAR(report["iteration_ms"]["p99"], 60, 2.4);
  EXPECT_NEAR(report["schedule_us"]["mean"], 50, 1e-6);
  EXPECT_NEAR(report["gpu_busy"], 0.75, 1e-9);
  EXPECT_NEAR(report["cpu_attention_busy"], 0.25, 1e-9);
  EXPECT_NEAR(report["cpu_attention_gb_per_s"], 25, 1e-9);
  EXPECT_NEAR(report["cpu_attention_busy_gb_per_s"], 100, 1e-9);
  // 15 tokens.
  EXPECT_NEAR(report["cpu_attention_read_kb_per_token"], 5e6 / 15, 1e-6);
  EXPECT_NEAR(report["cpu_attention_attended_kb_per_token"], 7.5e6 / 15, 1e-6);
  EXPECT_EQ(report["cpu_tier_tokens"], 15);
  EXPECT_EQ(report["swapped_tokens"], 32);
  EXPECT_EQ(report["rider_visits"], 40);
  EXPECT_EQ(report["rider_skips"], 3);
  EXPECT_EQ(report["max_cpu_kv_tokens"], 48);
  EXPECT_NEAR(report["max_cpu_kv_gb"], 0.048, 1e-9);
  EXPECT_EQ(report["iteration_tokens"],
            ordered_json({{"prefill", 20.0}, {"gpu_tier", 2.5}, {"cpu_tier", 1.5}}));
  EXPECT_NEAR(report["prediction_error"], 0.05, 1e-9);
}

TEST(BenchReport, AWindowIsWhatCounts) {
  BenchRun run = MakeRun();
  // Tokens at 110, 130 and 200 ms; the failed request's was before.
  const Clock::time_point start = run.records[0].start;
  run.window = BenchWindow{.begin = start + milliseconds(105), .end = start + milliseconds(205)};
  BenchConditions conditions = MakeConditions();
  conditions.steady_start = true;
  const ordered_json report = MakeBenchReport(conditions, run, {});
  EXPECT_EQ(report["steady_start"], true);
  EXPECT_NEAR(report["window_s"], 0.1, 1e-9);
  EXPECT_EQ(report["duration"], 0.2);
  EXPECT_EQ(report["completed"], 2);
  EXPECT_EQ(report["total_output_tokens"], 3);
  EXPECT_EQ(report["total_input_tokens"], 20);
  EXPECT_NEAR(report["output_throughput"], 30, 1e-6);
  EXPECT_NEAR(report["gpu_busy"], 1.5, 1e-6) << "counters are those of the window";
  EXPECT_EQ(report["gpu_tier"]["output_tokens"], 3);
  EXPECT_EQ(report["gpu_tier"]["token_share"], 1.0);
  EXPECT_NEAR(report["gpu_tier"]["median_itl_ms"], 15, 1e-3);
  EXPECT_TRUE(report["cpu_tier"]["mean_itl_ms"].is_null());
  EXPECT_NEAR(report["steady_output_throughput"], 30, 1e-6);
  // 20 tokens of input for 3 of output, where all three requests together have 70 for 9.
  EXPECT_NEAR(report["steady_prefill_share"], 20.0 / 3 / (70.0 / 9), 1e-9);
  EXPECT_THAT(FormatBenchTable(report), HasSubstr("what counts: 0.10 s of it; 0 requests were not done"));
}

TEST(BenchReport, WorkersThatDidNothingAndMissingPredictionsAreNull) {
  BenchRun run = MakeRun();
  run.engine->after.cpu_attention_busy_seconds = run.engine->before.cpu_attention_busy_seconds;
  run.engine->after.predicted_seconds = run.engine->before.predicted_seconds;
  const ordered_json report = MakeBenchReport(MakeConditions(), run, {});
  EXPECT_TRUE(report["cpu_attention_busy"].is_null());
  EXPECT_TRUE(report["cpu_attention_gb_per_s"].is_null());
  EXPECT_TRUE(report["prediction_error"].is_null());
  EXPECT_TRUE(report["upper_bound_throughput"].is_null());
}

// Nothing takes time but the products: 1 ms for up to any number of tokens.
class FlatCosts : public LayerCosts {
 public:
  int64_t num_layers() const override { return 1; }
  double LinearUs(int64_t num_tokens) const override { return num_tokens > 0 ? 1000 : 0; }
  double GpuDecodeAttentionUs(int64_t /*num_rows*/, int64_t /*kv_tokens*/) const override { return 0; }
  double PrefillAttentionUs(int64_t /*num_tokens*/, int64_t /*context_len*/) const override { return 0; }
  double CpuAttentionUs(int64_t /*num_rows*/, int64_t /*kv_tokens*/) const override { return 0; }
  double ExchangeUs(int64_t /*num_rows*/) const override { return 0; }
  double SwapUs(int64_t /*num_tokens*/) const override { return 0; }
  double OutsideLayersUs(int64_t /*num_sampled*/) const override { return 0; }
  const RowTiles& row_tiles() const override { return tiles_; }

 private:
  const RowTiles tiles_ = RowTiles();
};

TEST(BenchReport, TheBoundIsOfTheCompletedRequestsAndBothTiers) {
  BenchRun run = MakeRun();
  const FlatCosts costs;
  run.costs = &costs;
  const ordered_json report = MakeBenchReport(MakeConditions(), run, {});
  // 256 and 64 tokens of KV for rows that hold (3 * 11.5 + 1 * 20.5) / 4 tokens.
  EXPECT_NEAR(report["ideal_gpu_only_throughput"], 256 / 13.75 * 1000, 1e-6);
  EXPECT_NEAR(report["upper_bound_throughput"], 320 / 13.75 * 1000, 1e-6);
}

TEST(BenchReport, WhatNothingMeasuredIsNull) {
  BenchRun run = MakeRun();
  run.engine.reset();
  run.records.resize(0);
  const ordered_json report = MakeBenchReport(MakeConditions(), run, {});
  for (const char* field :
       {"gpu_busy", "cpu_attention_busy", "cpu_attention_gb_per_s", "cpu_tier_tokens", "swapped_tokens",
        "iteration_tokens", "prediction_error", "ideal_gpu_only_throughput", "upper_bound_throughput",
        "balanced_output_throughput", "strategy_iterations", "gpu_kv_tokens", "preemptions",
        "recomputed_tokens", "prefix_hit_rate", "mean_ttft_ms", "p99_itl_ms", "mean_per_token_latency_s",
        "steady_output_throughput"}) {
    ASSERT_TRUE(report.contains(field)) << field;
    EXPECT_TRUE(report[field].is_null()) << field;
  }
  EXPECT_TRUE(report["iteration_ms"]["p99"].is_null());
}

// Four tokens, in a run that used so much.
ordered_json EnergyReport(const std::string& device, EnergyReading used, HostEnergySource source,
                          double watts_per_core = 0) {
  BenchConditions conditions = MakeConditions();
  conditions.engine.device = device;
  BenchRun run = MakeRun();
  EnergyReading before{.gpu_j = {}, .host_j = {}};
  if (used.gpu_j) before.gpu_j = 100;
  if (used.host_j) before.host_j = 1000;
  const auto plus = [](std::optional<double> begin, std::optional<double> more) {
    return begin && more ? std::optional(*begin + *more) : std::nullopt;
  };
  run.energy = EnergyOfRun{
      .before = before,
      .after = {.gpu_j = plus(before.gpu_j, used.gpu_j), .host_j = plus(before.host_j, used.host_j)},
      .host_source = source,
      .watts_per_core = watts_per_core};
  return MakeBenchReport(conditions, run, {});
}

TEST(BenchReport, JoulesATokenAreThoseOfGpuAndHost) {
  const ordered_json report = EnergyReport("cuda", {.gpu_j = 6.0, .host_j = 2.0}, HostEnergySource::kRapl);
  const ordered_json& energy = report["energy"];
  EXPECT_EQ(energy["gpu_j"], 6.0);
  EXPECT_EQ(energy["gpu_source"], "nvml");
  EXPECT_EQ(energy["host_j"], 2.0);
  EXPECT_EQ(energy["host_source"], "rapl");
  EXPECT_TRUE(energy["watts_per_core"].is_null());
  EXPECT_DOUBLE_EQ(energy["j_per_token"], 2.0);
  EXPECT_THAT(FormatBenchTable(report), HasSubstr("2.000 J a token"));
}

TEST(BenchReport, AStatedWattageIsNamed) {
  const ordered_json report =
      EnergyReport("host", {.gpu_j = {}, .host_j = 2.0}, HostEnergySource::kWattsPerCore, 5);
  EXPECT_EQ(report["energy"]["host_source"], "watts-per-core");
  EXPECT_EQ(report["energy"]["watts_per_core"], 5);
  EXPECT_TRUE(report["energy"]["gpu_j"].is_null());
  EXPECT_DOUBLE_EQ(report["energy"]["j_per_token"], 0.5);
  EXPECT_THAT(FormatBenchTable(report), HasSubstr("J (at 5 W a busy core)"));
}

TEST(BenchReport, WithoutAllOfTheMachineThereIsNoRatio) {
  const ordered_json no_host = EnergyReport("cuda", {.gpu_j = 6.0, .host_j = {}}, HostEnergySource::kNone);
  EXPECT_EQ(no_host["energy"]["gpu_j"], 6.0);
  EXPECT_TRUE(no_host["energy"]["host_source"].is_null());
  EXPECT_TRUE(no_host["energy"]["j_per_token"].is_null());
  EXPECT_THAT(FormatBenchTable(no_host), testing::Not(HasSubstr("energy")));
  const ordered_json no_gpu = EnergyReport("cuda", {.gpu_j = {}, .host_j = 2.0}, HostEnergySource::kRapl);
  EXPECT_TRUE(no_gpu["energy"]["gpu_source"].is_null());
  EXPECT_TRUE(no_gpu["energy"]["j_per_token"].is_null());
  EXPECT_TRUE(MakeBenchReport(MakeConditions(), MakeRun(), {})["energy"].is_null());
}

TEST(BenchReport, TheTableSaysWhatWasLeftOutAndWhatFailed) {
  const std::string table = FormatBenchTable(MakeBenchReport(MakeConditions(), MakeRun(), {}));
  EXPECT_THAT(table,
              HasSubstr("osc, offline, m on host: 2 of 3 requests in 0.20 s; 2 longer than the context of "
                        "4096 tokens were left out"));
  EXPECT_THAT(table, HasSubstr("1 failed: out of paper"));
  EXPECT_THAT(table, HasSubstr("20.0 tok/s"));
  EXPECT_THAT(table, HasSubstr("0.250 of the run"));
  EXPECT_THAT(table, HasSubstr("25.0 GB/s of KV"));
}

// The run's requests were due at 0, 50 and 100 ms, against a server.
BenchRun MakeOnlineRun() {
  BenchRun run = MakeRun();
  run.engine.reset();
  const Clock::time_point start = run.records[0].start;
  for (size_t i = 0; i < 3; ++i) run.records[i].start = start + milliseconds(50 * static_cast<int64_t>(i));
  run.records[0].send_delay_ms = 4;
  run.records[2].rejected = true;
  run.online = OnlineFigures{
      .start = start, .num_unsent = 7, .peak_concurrency = 2, .client_cpu_s = 0.002, .client_s = 0.25};
  return run;
}

BenchConditions MakeOnlineConditions() {
  BenchConditions conditions = MakeConditions();
  conditions.mode = "online";
  conditions.engine.max_model_len = 0;
  conditions.online =
      OnlineConditions{.arrivals = {.kind = ArrivalKind::kPoisson, .rate = 20},
                       .warm_up_s = 0.01,
                       .deadline_s = 3,
                       .server = BenchServer{.url = "http://h:1", .model = "theirs", .vocab_size = 99}};
  return conditions;
}

TEST(BenchReport, AnOnlineRunSaysHowRequestsArrivedAndWhatBecameOfThem) {
  const ordered_json report = MakeBenchReport(MakeOnlineConditions(), MakeOnlineRun(), {});
  EXPECT_EQ(report["url"], "http://h:1");
  EXPECT_EQ(report["model"], "theirs");
  EXPECT_EQ(report["server_model"], "theirs");
  EXPECT_EQ(report["vocab_size"], 99);
  EXPECT_EQ(report["arrivals"], "poisson");
  EXPECT_EQ(report["rate"], 20.0);
  EXPECT_EQ(report["warm_up_s"], 0.01);
  EXPECT_EQ(report["cool_down_s"], 0.0);
  EXPECT_EQ(report["deadline_s"], 3.0);
  EXPECT_EQ(report["completed"], 2);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["rejected"], 1);
  EXPECT_EQ(report["unsent"], 7);
  EXPECT_EQ(report["counted_requests"], 3);
  EXPECT_EQ(report["errors"],
            ordered_json::array({{{"message", "out of paper"}, {"count", 1}, {"rejected", true}}}));
  EXPECT_EQ(report["peak_concurrency"], 2);
  EXPECT_NEAR(report["send_delay_ms"]["mean"], 4.0 / 3, 1e-9);
  EXPECT_NEAR(report["client_cpu_share"], 0.008, 1e-9);
  EXPECT_NEAR(report["client_cpu_us_per_token"], 2000.0 / 5, 1e-9) << "of all tokens that came";
  for (const char* field : {"time_scale", "max_concurrency", "device", "dtype", "strategy", "max_model_len",
                            "max_num_seqs", "gpu_busy", "iterations", "gpu_tier", "cpu_tier"}) {
    ASSERT_TRUE(report.contains(field)) << field;
    EXPECT_TRUE(report[field].is_null()) << field;
  }
}

TEST(BenchReport, TheTableOfAServerLeavesOutWhatOnlyAnEngineSays) {
  const std::string table = FormatBenchTable(MakeBenchReport(MakeOnlineConditions(), MakeOnlineRun(), {}));
  EXPECT_THAT(table, HasSubstr("osc, online, theirs on http://h:1: 2 of 3 requests"));
  EXPECT_THAT(table, HasSubstr("1 rejected: out of paper"));
  EXPECT_THAT(table, HasSubstr("20.000 req/s, poisson"));
  EXPECT_THAT(table, HasSubstr("400.0 us a token"));
  EXPECT_THAT(table, testing::Not(HasSubstr("iteration")));
}

TEST(BenchReport, ManyMessagesAreCutOffAtTheRarest) {
  BenchRun run = MakeRun();
  for (int i = 0; i < 30; ++i) {
    RequestRecord record = run.records[2];
    record.error = "reason " + std::to_string(i);
    run.records.push_back(record);
    if (i == 29) run.records.push_back(record);
  }
  const ordered_json report = MakeBenchReport(MakeConditions(), run, {});
  ASSERT_EQ(report["errors"].size(), 21U);
  EXPECT_EQ(report["errors"][0]["message"], "reason 29");
  EXPECT_EQ(report["errors"][20], ordered_json({{"message", "11 other messages"}, {"count", 11}}));
}

TEST(RequestRecorder, AnotherNumberOfTokensThanWantedIsAFailure) {
  RequestRecorder recorder({{.prompt_tokens = 1, .output_tokens = 2, .arrival_s = {}}});
  recorder.Start(0, Clock::now());
  recorder.AddTokens(0, 3, false, Clock::now());
  recorder.End(0, "");
  const std::vector<RequestRecord> records = recorder.TakeRecords();
  EXPECT_FALSE(records[0].completed());
  EXPECT_EQ(records[0].error, "3 output tokens instead of 2");
  EXPECT_EQ(records[0].inter_token_ms.size(), 2U);
}

}  // namespace
}  // namespace tandem
