#include "bench/offline_bench.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/bench_report.h"

namespace tandem {
namespace {

std::unique_ptr<Engine> MakeEngine(int64_t max_num_queued_reqs = 100) {
  EngineOptions options;
  options.model = std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/families/llama2/model.gguf";
  options.dtype = DType::kF32;
  options.cpu_threads = 1;
  options.max_model_len = 64;
  options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 512};
  options.max_num_queued_reqs = max_num_queued_reqs;
  options.show_progress = false;
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return std::move(engine).value();
}

Workload MakeWorkload(int64_t num_requests) {
  auto workload = LoadWorkload("synthetic:in=20,out=10", num_requests, 1);
  EXPECT_TRUE(workload.ok());
  return std::move(workload).value();
}

TEST(OfflineBench, EveryRequestGetsItsNumberOfTokens) {
  const auto engine = MakeEngine();
  const Workload workload = MakeWorkload(30);
  const auto run =
      RunOfflineBench(engine.get(), workload, {.num_warmup = 4, .seed = 3, .show_progress = false});
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_EQ(run->records.size(), 30U);
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;
  double longest_s = 0;
  for (size_t i = 0; i < 30; ++i) {
    const RequestRecord& record = run->records[i];
    EXPECT_TRUE(record.completed()) << record.error;
    EXPECT_EQ(record.output_tokens, workload.requests[i].output_tokens);
    EXPECT_EQ(static_cast<int64_t>(record.inter_token_ms.size()), record.output_tokens - 1);
    EXPECT_GT(record.first_token, record.start);
    EXPECT_GE(record.last_token, record.first_token);
    output_tokens += record.output_tokens;
    prompt_tokens += record.prompt_tokens;
    longest_s = std::max(longest_s, std::chrono::duration<double>(record.last_token - record.start).count());
  }
  EXPECT_GE(run->duration_s, longest_s);
  // The warm-up is in neither.
  const EngineStats& before = run->engine->before;
  const EngineStats& after = run->engine->after;
  EXPECT_GT(before.generation_tokens, 0U);
  EXPECT_EQ(after.generation_tokens - before.generation_tokens, static_cast<uint64_t>(output_tokens));
  EXPECT_EQ(after.prompt_tokens - before.prompt_tokens, static_cast<uint64_t>(prompt_tokens));
  EXPECT_LE(after.busy_seconds - before.busy_seconds, run->duration_s * 1.05 + 0.05);

  BenchConditions conditions;
  conditions.engine = engine->options();
  const nlohmann::ordered_json report = MakeBenchReport(conditions, *run, {});
  EXPECT_EQ(report["completed"], 30);
  EXPECT_EQ(report["total_output_tokens"], output_tokens);
  EXPECT_GT(report["iteration_ms"]["mean"], 0.0);
}

TEST(OfflineBench, WhatTheEngineRefusesHasFailed) {
  const auto engine = MakeEngine();
  Workload workload = MakeWorkload(5);
  workload.requests[2].prompt_tokens = 1000;
  const auto run = RunOfflineBench(engine.get(), workload, {.show_progress = false});
  ASSERT_TRUE(run.ok()) << run.error().message;
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(run->records[i].completed(), i != 2);
  EXPECT_NE(run->records[2].error.find("the context is 64 tokens"), std::string::npos)
      << run->records[2].error;
}

TEST(OfflineBench, NoCompletedRequestIsAnError) {
  const auto engine = MakeEngine(0);
  const auto run = RunOfflineBench(engine.get(), MakeWorkload(3), {.show_progress = false});
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("all 3 requests failed, the first because: the queue is full"),
            std::string::npos)
      << run.error().message;
}

}  // namespace
}  // namespace tandem
