// Metrics of a real engine that uses the cpu tier.
#include "server/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <latch>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace tandem {
namespace {

constexpr int kNumRequests = 3;
constexpr int64_t kPromptTokens = 40;
constexpr int64_t kOutputTokens = 6;

class ServerMetricsTest : public testing::Test {
 protected:
  // Costs are measured anew in each test.
  ServerMetricsTest()
      : cache_folder_(std::filesystem::temp_directory_path() /
                      ("tandem-metrics-" + std::to_string(getpid()))) {}
  ~ServerMetricsTest() override { std::filesystem::remove_all(cache_folder_); }

  std::unique_ptr<Engine> MakeEngine(const std::string& strategy,
                                     const std::string& cpu_kv_cache_dtype = "auto") const {
    EngineOptions options;
    options.model = std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/families/llama2/model.gguf";
    options.dtype = DType::kF32;
    options.strategy = strategy;
    options.cpu_threads = 1;
    options.max_model_len = 64;
    options.max_num_seqs = 8;
    options.max_num_batched_tokens = 64;
    options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 512};
    if (strategy != "gpu-only") options.cpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 1024};
    options.cpu_kv_cache_dtype = cpu_kv_cache_dtype;
    options.show_progress = false;
    options.cpu_trial = false;
    options.cache_folder = cache_folder_.string();
    auto engine = Engine::Create(options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return std::move(engine).value();
  }

 private:
  std::filesystem::path cache_folder_;
};

// Returns when they have ended; the engine takes more.
void ServeSome(Engine* engine) {
  std::latch ended(kNumRequests);
  for (int i = 0; i < kNumRequests; ++i) {
    RequestSpec spec;
    spec.prompt_tokens.assign(static_cast<size_t>(kPromptTokens), 3 + i);
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = kOutputTokens;
    spec.sampling.ignore_eos = true;
    const auto id = engine->Submit(std::move(spec), [&ended](const RequestOutput& output) {
      if (output.finish_reason != FinishReason::kNone) ended.count_down();
    });
    ASSERT_TRUE(id.ok()) << id.error().message;
  }
  ended.wait();
}

void Serve(Engine* engine) {
  ServeSome(engine);
  engine->Drain();
}

// Of the sample with this name, labels included where given. Absent: there is none.
std::optional<double> ValueOf(const std::string& text, const std::string& name,
                              const std::string& label = {}) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + "{") || line.find(label) == std::string::npos) continue;
    return std::stod(line.substr(line.rfind(' ') + 1));
  }
  return std::nullopt;
}

// Every decode of simple-offload is in the cpu tier.
TEST_F(ServerMetricsTest, CpuTierIsCounted) {
  const std::unique_ptr<Engine> engine = MakeEngine("simple-offload");
  const ServerMetrics metrics(engine.get(), "tiny");
  const std::string before = metrics.Render();
  for (const char* name :
       {"tandem:cpu_attention_busy_seconds_total", "tandem:cpu_attention_kv_bytes_total",
        "tandem:cpu_attention_attended_kv_bytes_total", "tandem:swapped_tokens_total",
        "tandem:cpu_tier_tokens_total", "tandem:rider_visits_total", "tandem:rider_skips_total",
        "tandem:predicted_seconds_total", "tandem:prediction_error_seconds_total"}) {
    EXPECT_EQ(ValueOf(before, name), 0.0) << name;
    EXPECT_NE(before.find("# TYPE " + std::string(name) + " counter\n"), std::string::npos) << name;
  }
  EXPECT_EQ(ValueOf(before, "tandem:strategy_iterations_total"), std::nullopt);

  Serve(engine.get());
  const EngineStats stats = engine->Stats();
  const std::string after = metrics.Render();
  const auto value = [&](const char* name) { return ValueOf(after, name); };
  // A prompt's first token included: its KV is there by then.
  EXPECT_EQ(value("tandem:cpu_tier_tokens_total"), static_cast<double>(kNumRequests * kOutputTokens));
  // The last token of a prompt may be left over by a chunk: then it is a decode, which swaps nothing.
  EXPECT_LE(value("tandem:swapped_tokens_total"), static_cast<double>(kNumRequests * kPromptTokens));
  EXPECT_GE(value("tandem:swapped_tokens_total"), static_cast<double>(kNumRequests * (kPromptTokens - 1)));
  EXPECT_GT(value("tandem:cpu_attention_kv_bytes_total"), 0.0);
  EXPECT_EQ(value("tandem:cpu_attention_kv_bytes_total"), static_cast<double>(stats.cpu_attention_kv_bytes));
  EXPECT_EQ(value("tandem:cpu_attention_attended_kv_bytes_total"),
            static_cast<double>(stats.cpu_attention_attended_kv_bytes));
  EXPECT_GE(stats.cpu_attention_attended_kv_bytes, stats.cpu_attention_kv_bytes);
  EXPECT_GT(value("tandem:cpu_attention_busy_seconds_total"), 0.0);
  EXPECT_DOUBLE_EQ(*value("tandem:cpu_attention_busy_seconds_total"), stats.cpu_attention_busy_seconds);
  EXPECT_GT(value("tandem:predicted_seconds_total"), 0.0);
  EXPECT_DOUBLE_EQ(*value("tandem:predicted_seconds_total"), stats.predicted_seconds);
  EXPECT_GT(value("tandem:prediction_error_seconds_total"), 0.0);
  EXPECT_DOUBLE_EQ(*value("tandem:prediction_error_seconds_total"), stats.prediction_error_seconds);
  EXPECT_EQ(ValueOf(after, "tandem:strategy_iterations_total", "strategy=\"simple-offload\""),
            static_cast<double>(stats.iterations));
}

TEST_F(ServerMetricsTest, IterationTokensAreBucketsOfAllTokens) {
  const std::unique_ptr<Engine> engine = MakeEngine("gpu-only");
  const ServerMetrics metrics(engine.get(), "tiny");
  Serve(engine.get());
  const EngineStats stats = engine->Stats();
  const std::string text = metrics.Render();
  EXPECT_NE(text.find("# TYPE vllm:iteration_tokens_total histogram\n"), std::string::npos);
  EXPECT_EQ(ValueOf(text, "vllm:iteration_tokens_total_count"), static_cast<double>(stats.iterations));
  EXPECT_EQ(ValueOf(text, "vllm:iteration_tokens_total_sum"),
            static_cast<double>(kNumRequests * (kPromptTokens + kOutputTokens)));
  EXPECT_EQ(ValueOf(text, "vllm:iteration_tokens_total_bucket", "le=\"+Inf\""),
            static_cast<double>(stats.iterations));
  // A step of 64 rows holds a prompt, and a part of the next.
  EXPECT_EQ(ValueOf(text, "vllm:iteration_tokens_total_bucket", "le=\"128\""),
            static_cast<double>(stats.iterations));
  EXPECT_LT(*ValueOf(text, "vllm:iteration_tokens_total_bucket", "le=\"8\""),
            static_cast<double>(stats.iterations));
}

TEST_F(ServerMetricsTest, PromptTokensAreComputedOrCached) {
  const std::unique_ptr<Engine> engine = MakeEngine("gpu-only");
  const ServerMetrics metrics(engine.get(), "tiny");
  const std::string before = metrics.Render();
  for (const char* name :
       {"vllm:prompt_tokens_total", "vllm:prompt_tokens_cached_total", "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total", "tandem:prefix_cache_blocks", "tandem:recomputed_tokens_total"}) {
    EXPECT_EQ(ValueOf(before, name), 0.0) << name;
  }
  ServeSome(engine.get());
  Serve(engine.get());
  const EngineStats stats = engine->Stats();
  const std::string after = metrics.Render();
  const auto all = static_cast<double>(2 * kNumRequests * kPromptTokens);
  const int64_t num_full_blocks = kPromptTokens / stats.block_size;
  const auto hits = static_cast<double>(kNumRequests * num_full_blocks * stats.block_size);
  EXPECT_GT(hits, 0.0);
  EXPECT_EQ(static_cast<double>(stats.prompt_tokens), all - hits);
  EXPECT_EQ(ValueOf(after, "vllm:prompt_tokens_total"), all);
  EXPECT_EQ(ValueOf(after, "vllm:prompt_tokens_cached_total"), hits);
  EXPECT_EQ(ValueOf(after, "vllm:prefix_cache_queries_total"), all);
  EXPECT_EQ(ValueOf(after, "vllm:prefix_cache_hits_total"), hits);
  EXPECT_GE(*ValueOf(after, "tandem:prefix_cache_blocks", "tier=\"gpu\""),
            static_cast<double>(kNumRequests * num_full_blocks));
  EXPECT_EQ(ValueOf(after, "tandem:prefix_cache_blocks", "tier=\"cpu\""), 0.0);
  EXPECT_EQ(ValueOf(after, "tandem:recomputed_tokens_total"), 0.0);
}

TEST_F(ServerMetricsTest, PhasesAreOfThoseThatGotTokens) {
  const std::unique_ptr<Engine> engine = MakeEngine("gpu-only");
  ServerMetrics metrics(engine.get(), "tiny");
  FinishedSequence sequence{.reason = "stop",
                            .e2e_seconds = 7,
                            .phases = SequencePhases{1, 2, 4},
                            .prompt_tokens = 10,
                            .generation_tokens = 5,
                            .max_tokens = 20};
  metrics.ObserveFinished(sequence);
  sequence.reason = "abort";
  sequence.phases.reset();
  sequence.generation_tokens = 0;
  metrics.ObserveFinished(sequence);
  metrics.ObserveFinished(FinishedPrompt{.n = 2, .max_generation_tokens = 5});
  metrics.CountGenerationTokens(5);
  const std::string text = metrics.Render();
  const auto value = [&](const std::string& name) { return ValueOf(text, "vllm:" + name); };
  EXPECT_EQ(value("e2e_request_latency_seconds_sum"), 14.0);
  EXPECT_EQ(value("request_queue_time_seconds_sum"), 1.0);
  EXPECT_EQ(value("request_prefill_time_seconds_sum"), 2.0);
  EXPECT_EQ(value("request_decode_time_seconds_sum"), 4.0);
  EXPECT_EQ(value("request_inference_time_seconds_sum"), 6.0);
  EXPECT_EQ(value("request_inference_time_seconds_count"), 1.0);
  EXPECT_EQ(value("request_time_per_output_token_seconds_sum"), 1.0);
  EXPECT_EQ(value("request_params_n_sum"), 2.0);
  EXPECT_EQ(value("request_params_n_count"), 1.0);
  EXPECT_EQ(value("request_max_num_generation_tokens_sum"), 5.0);
  EXPECT_EQ(value("request_generation_tokens_count"), 2.0);
  EXPECT_EQ(value("generation_tokens_total"), 5.0);
  EXPECT_EQ(ValueOf(text, "vllm:request_success_total", "abort"), 1.0);
}

TEST_F(ServerMetricsTest, RidersAreCounted) {
  const std::unique_ptr<Engine> engine = MakeEngine("async");
  const ServerMetrics metrics(engine.get(), "tiny");
  Serve(engine.get());
  const EngineStats stats = engine->Stats();
  const std::string text = metrics.Render();
  EXPECT_EQ(ValueOf(text, "tandem:drawn_tokens_total"), static_cast<double>(kNumRequests * kOutputTokens));
  EXPECT_EQ(ValueOf(text, "tandem:rider_visits_total"), static_cast<double>(stats.rider_visits));
  EXPECT_EQ(ValueOf(text, "tandem:rider_skips_total"), static_cast<double>(stats.rider_skips));
}

// What is gone by is auto's choice on this machine, so only what must hold of any.
TEST_F(ServerMetricsTest, StrategiesMakeWhatWasDrawn) {
  const std::unique_ptr<Engine> engine = MakeEngine("auto");
  const ServerMetrics metrics(engine.get(), "tiny");
  EXPECT_EQ(ValueOf(metrics.Render(), "tandem:strategy_current"), std::nullopt);
  Serve(engine.get());
  const EngineStats stats = engine->Stats();
  const std::string text = metrics.Render();
  double num_current = 0;
  double iteration_seconds = 0;
  double made_tokens = 0;
  for (const auto& named : stats.strategies) {
    const std::string& strategy = named.first;
    const auto value = [&](const char* name) {
      return ValueOf(text, name, fmt::format("strategy=\"{}\"", strategy)).value_or(-1);
    };
    num_current += value("tandem:strategy_current");
    iteration_seconds += value("tandem:strategy_seconds_total");
    made_tokens += value("tandem:strategy_made_tokens_total");
    EXPECT_GE(value("tandem:strategy_changes_total"), 1.0) << strategy;
    EXPECT_GT(value("tandem:strategy_promised_tokens_total"), 0.0) << strategy;
  }
  EXPECT_EQ(num_current, 1.0) << text;
  EXPECT_NEAR(iteration_seconds, stats.gpu_busy_seconds, 1e-6 * stats.gpu_busy_seconds);
  EXPECT_EQ(made_tokens, static_cast<double>(kNumRequests * kOutputTokens));
  for (const char* strategy : {"gpu-only", "asymmetric", "async"}) {
    EXPECT_GT(ValueOf(text, "tandem:strategy_cost_factor", fmt::format("strategy=\"{}\"", strategy)), 0.0)
        << strategy;
  }
  EXPECT_GT(ValueOf(text, "tandem:cpu_attention_cost_factor", ""), 0.0);
  EXPECT_GT(ValueOf(text, "tandem:gpu_beside_cpu_attention_cost_factor", ""), 0.0);
}

TEST_F(ServerMetricsTest, CacheConfigNamesTheTypesOfTheTiers) {
  const std::unique_ptr<Engine> engine = MakeEngine("simple-offload", "int8");
  const std::string text = ServerMetrics(engine.get(), "tiny").Render();
  EXPECT_EQ(ValueOf(text, "vllm:cache_config_info", ",cache_dtype=\"fp32\""), 1.0) << text;
  EXPECT_EQ(ValueOf(text, "vllm:cache_config_info", "cpu_cache_dtype=\"int8\""), 1.0) << text;
}

TEST_F(ServerMetricsTest, WithoutCpuTierItsCountersStay) {
  const std::unique_ptr<Engine> engine = MakeEngine("gpu-only");
  const ServerMetrics metrics(engine.get(), "tiny");
  Serve(engine.get());
  const std::string text = metrics.Render();
  EXPECT_EQ(ValueOf(text, "tandem:cpu_tier_tokens_total"), 0.0);
  EXPECT_EQ(ValueOf(text, "tandem:cpu_attention_kv_bytes_total"), 0.0);
  // The host backend measures no costs for it, so nothing is predicted.
  EXPECT_EQ(ValueOf(text, "tandem:predicted_seconds_total"), 0.0);
  EXPECT_EQ(ValueOf(text, "tandem:strategy_iterations_total", "strategy=\"gpu-only\""),
            static_cast<double>(engine->Stats().iterations));
  EXPECT_EQ(ValueOf(text, "tandem:drawn_tokens_total"), static_cast<double>(kNumRequests * kOutputTokens));
}

}  // namespace
}  // namespace tandem
