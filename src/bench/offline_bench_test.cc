#include "bench/offline_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "bench/bench_report.h"
#include "bench/engine_testing.h"
#include "bench/run_totals.h"
#include "bench/upper_bound.h"
#include "perf/cost_table.h"

namespace tandem {
namespace {

std::unique_ptr<Engine> MakeOfflineEngine(int64_t max_num_queued_reqs = 100,
                                          const char* strategy = "gpu-only") {
  EngineOptions options = TestEngineOptions();
  options.cpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 512};
  options.strategy = strategy;
  options.max_num_queued_reqs = max_num_queued_reqs;
  return CreateTestEngine(options);
}

// In the half second of a run, by any machine; the queue takes all of them.
constexpr int64_t kMoreThanIsDone = 29000;

Workload MakeWorkload(int64_t num_requests) {
  auto workload = LoadWorkload("synthetic:in=20,out=10", num_requests, 1);
  EXPECT_TRUE(workload.ok());
  return std::move(workload).value();
}

TEST(OfflineBench, EveryRequestGetsItsNumberOfTokens) {
  const auto engine = MakeOfflineEngine();
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
  EXPECT_GE(before.generation_tokens, 4U * 2) << "four requests of several tokens";
  EXPECT_EQ(after.generation_tokens - before.generation_tokens, static_cast<uint64_t>(output_tokens));
  EXPECT_EQ(after.prompt_tokens - before.prompt_tokens, static_cast<uint64_t>(prompt_tokens));
  EXPECT_LE(after.busy_seconds - before.busy_seconds, run->duration_s * 1.05 + 0.05);

  BenchConditions conditions;
  conditions.engine = engine->options();
  const nlohmann::ordered_json report = MakeBenchReport(conditions, *run, {});
  EXPECT_EQ(report["completed"], 30);
  EXPECT_EQ(report["total_output_tokens"], output_tokens);
  // Each of at most 11 tokens, and they run side by side.
  EXPECT_LE(report["iterations"], output_tokens + 30);
  EXPECT_GE(report["iterations"], 11);
  const double iteration_ms = report["iteration_ms"]["mean"];
  EXPECT_LE(iteration_ms * report["iterations"].get<double>(), 1050 * run->duration_s + 50);
}

TEST(OfflineBench, TheSamePromptsAgainAreComputedAgain) {
  const auto engine = MakeOfflineEngine();
  const auto workload = LoadWorkload("synthetic:in=50,out=5", 3, 1);
  ASSERT_TRUE(workload.ok());
  for (int i = 0; i < 2; ++i) {
    const auto run = RunOfflineBench(engine.get(), *workload, {.seed = 3, .show_progress = false});
    ASSERT_TRUE(run.ok()) << run.error().message;
    EXPECT_GT(run->engine->after.prefix_queried_tokens, run->engine->before.prefix_queried_tokens);
    EXPECT_EQ(run->engine->after.prefix_hit_tokens, 0U);
    EXPECT_GT(run->engine->after.prefix_blocks[0], 0) << "a third would find them";
  }
}

TEST(OfflineBench, TheDigestSaysWhetherTokensWereTheSame) {
  const Workload workload = MakeWorkload(12);
  const auto digest_of = [&](const char* strategy, uint64_t seed) {
    const auto engine = MakeOfflineEngine(100, strategy);
    const auto run = RunOfflineBench(engine.get(), workload, {.seed = seed, .show_progress = false});
    EXPECT_TRUE(run.ok());
    return run.ok() ? MakeBenchReport({}, *run, {})["output_digest"] : nlohmann::ordered_json();
  };
  const nlohmann::ordered_json digest = digest_of("gpu-only", 3);
  ASSERT_TRUE(digest.is_string());
  EXPECT_EQ(digest_of("full-offload", 3), digest) << "at fp32 strategies make the same tokens";
  EXPECT_NE(digest_of("gpu-only", 4), digest) << "of other prompts";
}

TEST(OfflineBench, WhatTheEngineRefusesHasFailed) {
  const auto engine = MakeOfflineEngine();
  Workload workload = MakeWorkload(5);
  workload.requests[2].prompt_tokens = 1000;
  const auto run = RunOfflineBench(engine.get(), workload, {.show_progress = false});
  ASSERT_TRUE(run.ok()) << run.error().message;
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(run->records[i].completed(), i != 2);
  EXPECT_TRUE(MakeBenchReport({}, *run, {})["output_digest"].is_null());
  EXPECT_NE(run->records[2].error.find("the context is 64 tokens"), std::string::npos)
      << run->records[2].error;
}

TEST(OfflineBench, ARunWithADurationCountsItsWindow) {
  const auto engine = MakeOfflineEngine(30000);
  const Workload workload = MakeWorkload(kMoreThanIsDone);
  const auto run =
      RunOfflineBench(engine.get(), workload, {.show_progress = false, .duration_s = 0.5, .warm_up_s = 0.2});
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->window.has_value());
  EXPECT_GE(run->window->seconds(), 0.2);
  const RunTotals totals = AddUpRun(*run);
  EXPECT_GT(totals.output_tokens, 0);
  const EngineStats& before = run->engine->before;
  const EngineStats& after = run->engine->after;
  // The counters are those of the window, but for an iteration at each end.
  EXPECT_NEAR(static_cast<double>(after.generation_tokens - before.generation_tokens),
              static_cast<double>(totals.output_tokens), 64);
}

TEST(OfflineBench, EnergyIsThatOfWhatCounts) {
  const auto engine = MakeOfflineEngine(30000);
  EnergyMeter meter({.watts_per_core = 2, .rapl_folder = testing::TempDir() + "/no_powercap"});
  const auto run = RunOfflineBench(
      engine.get(), MakeWorkload(kMoreThanIsDone),
      {.num_warmup = 4, .show_progress = false, .duration_s = 0.5, .warm_up_s = 0.2, .energy = &meter});
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_TRUE(run->energy.has_value());
  EXPECT_EQ(run->energy->host_source, HostEnergySource::kWattsPerCore);
  const double before_j = run->energy->before.host_j.value_or(0);
  EXPECT_GT(before_j, 0) << "the warm-up is before the window";
  EXPECT_GT(run->energy->after.host_j.value_or(0), before_j);
  const auto unmetered = RunOfflineBench(engine.get(), MakeWorkload(3), {.show_progress = false});
  ASSERT_TRUE(unmetered.ok());
  EXPECT_FALSE(unmetered->energy.has_value());
}

TEST(OfflineBench, WhatIsNotDoneInTimeIsCancelledAndNoFailure) {
  const auto engine = MakeOfflineEngine(30000);
  const Workload workload = MakeWorkload(kMoreThanIsDone);
  const auto run =
      RunOfflineBench(engine.get(), workload, {.show_progress = false, .duration_s = 0.4, .warm_up_s = 0.1});
  ASSERT_TRUE(run.ok()) << run.error().message;
  const RunTotals totals = AddUpRun(*run);
  EXPECT_GT(totals.unfinished, 0);
  EXPECT_EQ(totals.failed, 0);
  EXPECT_EQ(engine->Stats().num_running + engine->Stats().num_waiting, 0);
  BenchConditions conditions;
  conditions.engine = engine->options();
  const nlohmann::ordered_json report = MakeBenchReport(conditions, *run, {});
  EXPECT_EQ(report["unfinished"], totals.unfinished);
  EXPECT_NEAR(report["output_throughput"], static_cast<double>(totals.output_tokens) / run->window->seconds(),
              1e-6);
  EXPECT_EQ(report["output_throughput"], report["steady_output_throughput"]);
  EXPECT_EQ(report["gpu_tier"]["output_tokens"], totals.output_tokens);
  EXPECT_GT(report["gpu_tier"]["mean_itl_ms"], 0);
}

TEST(OfflineBench, WorkThatIsDoneBeforeItCountsIsAnError) {
  const auto engine = MakeOfflineEngine();
  const auto run = RunOfflineBench(engine.get(), MakeWorkload(2),
                                   {.show_progress = false, .duration_s = 60, .warm_up_s = 30});
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("before the warm-up was over"), std::string::npos)
      << run.error().message;
}

TEST(OfflineBench, ASteadyStartBeginsAmidTheOutput) {
  // 512 tokens for each tier in blocks of 32; a request needs a block, and in the gpu tier one to grow. What
  // the cpu tier begins with follows from costs that are measured here.
  struct Case {
    const char* strategy;
    int64_t fewest_begun;
    int64_t most_begun;
  };
  for (const auto& [strategy, fewest_begun, most_begun] :
       {Case{"gpu-only", 5, 9}, Case{"asymmetric", 5, 24}, Case{"full-offload", 6, 24}}) {
    SCOPED_TRACE(strategy);
    const auto engine = MakeOfflineEngine(100, strategy);
    const Workload workload = MakeWorkload(40);
    const auto run = RunOfflineBench(engine.get(), workload, {.show_progress = false, .steady_start = true});
    ASSERT_TRUE(run.ok()) << run.error().message;
    int64_t num_begun = 0;
    uint64_t computed_tokens = 0;
    for (size_t i = 0; i < 40; ++i) {
      const RequestRecord& record = run->records[i];
      EXPECT_TRUE(record.completed()) << record.error;
      EXPECT_EQ(record.made_tokens + record.output_tokens, workload.requests[i].output_tokens);
      if (record.begun) {
        ++num_begun;
      } else {
        computed_tokens += static_cast<uint64_t>(record.prompt_tokens);
      }
    }
    EXPECT_GE(num_begun, fewest_begun);
    EXPECT_LE(num_begun, most_begun);
    ASSERT_TRUE(run->begun.has_value());
    EXPECT_EQ(run->begun->num_begun, num_begun);
    const int64_t num_in_cpu_tier = run->begun->num_in_cpu_tier;
    EXPECT_TRUE(num_in_cpu_tier == 0 || std::string_view(strategy) != "gpu-only") << num_in_cpu_tier;
    EXPECT_TRUE(num_in_cpu_tier > 0 || std::string_view(strategy) != "full-offload");
    // Of those that had begun, the last token remained to be computed; all others were prefilled.
    EXPECT_EQ(run->engine->after.prompt_tokens - run->engine->before.prompt_tokens,
              computed_tokens + static_cast<uint64_t>(num_begun));
  }
}

TEST(OfflineBench, AWindowBeginsWithWhatTheStrategyKeepsInTheTiers) {
  const auto engine = MakeOfflineEngine(30000, "asymmetric");
  const Workload workload = MakeWorkload(kMoreThanIsDone);
  const auto run =
      RunOfflineBench(engine.get(), workload,
                      {.show_progress = false, .steady_start = true, .duration_s = 0.4, .warm_up_s = 0.1});
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_LE(run->records.size(), workload.requests.size());
  EXPECT_EQ(AddUpRun(*run).failed, 0);
  bool still_begun = true;
  int64_t num_begun = 0;
  for (const RequestRecord& record : run->records) {
    EXPECT_TRUE(record.completed() || record.cancelled) << record.error;
    EXPECT_TRUE(still_begun || !record.begun) << "those that have begun come first";
    still_begun = record.begun;
    num_begun += record.begun ? 1 : 0;
  }
  EXPECT_GE(num_begun, 4);
  EXPECT_LE(num_begun, 24);
  // These prompts are short: the few that are too many or too few take little time.
  BenchConditions conditions;
  conditions.engine = engine->options();
  conditions.mode = "offline";
  const nlohmann::ordered_json report = MakeBenchReport(conditions, *run, {});
  EXPECT_EQ(report["begun"]["requests"], num_begun);
  EXPECT_GT(report["begun"]["played_s"], 0);
  const double throughput = report["output_throughput"];
  if (report["balanced_output_throughput"].is_null()) {
    const double share = report["steady_prefill_share"];
    EXPECT_TRUE(share < 0.6 || share > 1.7) << share;
  } else {
    EXPECT_NEAR(report["balanced_output_throughput"], throughput, 0.3 * throughput);
  }
}

TEST(OfflineBench, InAClosedLoopNobodyWaits) {
  const auto engine = MakeOfflineEngine(100);
  const Workload workload = MakeWorkload(60);
  const auto run = RunOfflineBench(engine.get(), workload,
                                   {.show_progress = false, .steady_start = true, .closed_loop = true});
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_EQ(run->records.size(), 60U);
  const auto begun = [](const RequestRecord& record) { return record.begun; };
  const int64_t num_begun = std::count_if(run->records.begin(), run->records.end(), begun);
  ASSERT_GT(num_begun, 0);
  for (const RequestRecord& record : run->records) {
    EXPECT_TRUE(record.completed()) << record.error;
    const int64_t num_present =
        std::count_if(run->records.begin(), run->records.end(), [&record](const RequestRecord& other) {
          return other.start <= record.start && other.last_token >= record.start;
        });
    EXPECT_LE(num_present, num_begun);
  }
}

TEST(OfflineBench, AWindowOfAClosedLoopCountsWhatWasSent) {
  const auto engine = MakeOfflineEngine(30000);
  const auto run = RunOfflineBench(engine.get(), MakeWorkload(kMoreThanIsDone),
                                   {.show_progress = false,
                                    .steady_start = true,
                                    .closed_loop = true,
                                    .duration_s = 0.4,
                                    .warm_up_s = 0.1});
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_LT(run->records.size(), static_cast<size_t>(kMoreThanIsDone));
  EXPECT_GT(AddUpRun(*run).output_tokens, 0);
  EXPECT_EQ(engine->Stats().num_running + engine->Stats().num_waiting, 0);
}

TEST(OfflineBench, NoCompletedRequestIsAnError) {
  const auto engine = MakeOfflineEngine(0);
  const auto run = RunOfflineBench(engine.get(), MakeWorkload(3), {.show_progress = false});
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("all 3 requests failed, the first because: the queue is full"),
            std::string::npos)
      << run.error().message;
}

// Two requests of one beginning, whose bound is that of the work that is left.
TEST(OfflineBench, WhatATraceSharesIsNoWorkOfTheBound) {
  EngineOptions options = TestEngineOptions();
  options.max_model_len = 512;
  options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 4096};
  options.measure_costs = true;
  const auto engine = CreateTestEngine(options);
  Workload workload;
  workload.requests = {{.prompt_tokens = 400, .output_tokens = 4, .block_ids = {1}},
                       {.prompt_tokens = 480, .output_tokens = 4, .block_ids = {1}}};
  // possible: of the second request.
  const auto bound_of = [&](int64_t possible) {
    const auto run = RunOfflineBench(engine.get(), workload, {.seed = 3, .show_progress = false});
    EXPECT_TRUE(run.ok()) << run.error().message;
    EXPECT_EQ(run->records[0].possible_hit_tokens, 0);
    EXPECT_EQ(run->records[1].possible_hit_tokens, possible);
    EXPECT_EQ(run->records[1].shared_tokens, possible);
    BenchConditions conditions;
    conditions.engine = engine->options();
    return MakeBenchReport(conditions, *run, {})["upper_bound_throughput"].get<double>();
  };
  const double shared = bound_of(384);
  workload.requests[1].block_ids = {2};
  // 496 of 880 prompt tokens are left where they share.
  EXPECT_GT(shared, 1.2 * bound_of(0));
}

// Each shard has all rows and its heads of all tokens: what one of them takes is what all of them do.
TEST(OfflineBench, TheBoundOfShardsIsOfAllAndHasTheirSums) {
  EngineOptions options = TestEngineOptions();
  options.model.clear();
  options.dummy = "tiny";
  options.tensor_parallel_size = 2;
  options.cpu_threads = 2;
  options.strategy = "asymmetric";
  options.max_num_batched_tokens = 64;
  options.cpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 1024};
  options.measure_costs = true;
  options.profile_seconds = 2;
  options.cache_folder = "/proc/no-such-folder";
  const auto engine = CreateTestEngine(options);
  const Workload workload = MakeWorkload(8);
  const auto run = RunOfflineBench(engine.get(), workload, {.seed = 3, .show_progress = false});
  ASSERT_TRUE(run.ok()) << run.error().message;
  BenchConditions conditions;
  conditions.engine = engine->options();
  const auto report = MakeBenchReport(conditions, *run, {});
  EXPECT_EQ(report["gpu_kv_tokens"], 512);
  EXPECT_EQ(report["cpu_kv_tokens"], 1024);

  const auto bound_of = [&](const CostTable& costs) {
    return BoundThroughput(costs, workload.requests,
                           {.gpu_tier_tokens = 512, .cpu_tier_tokens = 1024, .max_chunk_tokens = 64});
  };
  CostMeasurements measured = engine->cost_table()->measurements();
  const ThroughputBound bound = bound_of(*engine->cost_table());
  EXPECT_DOUBLE_EQ(report["ideal_gpu_only_throughput"], bound.ideal_gpu_only);
  EXPECT_DOUBLE_EQ(report["upper_bound_throughput"], bound.upper_bound);
  EXPECT_FALSE(measured.all_reduce.empty());
  measured.all_reduce.clear();
  EXPECT_LT(bound.ideal_gpu_only, bound_of(CostTable::Create(measured).value()).ideal_gpu_only);
}

}  // namespace
}  // namespace tandem
