// The whole engine on a small real checkpoint.

#include "engine/engine.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "conformance/fixtures.h"
#include "engine/engine_client.h"

namespace tandem {
namespace {

EngineOptions SmallOptions() {
  EngineOptions options;
  options.strategy = "gpu-only";
  options.model = FixturePath("families/llama2/model.gguf");
  options.dtype = DType::kF32;
  options.cpu_threads = 2;
  options.gpu_kv_cache = CacheSize{.unit = CacheSize::Unit::kTokens, .amount = 8192};
  options.max_num_batched_tokens = 48;
  options.show_progress = false;
  options.cpu_trial = false;
  return options;
}

std::unique_ptr<Engine> MakeEngine(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return engine.ok() ? std::move(engine).value() : nullptr;
}

RequestSpec Spec(size_t index, int64_t max_tokens) {
  RequestSpec spec;
  spec.prompt_tokens.resize(3 + 17 * index % 90);
  for (size_t i = 0; i < spec.prompt_tokens.size(); ++i) {
    spec.prompt_tokens[i] = static_cast<int32_t>((i * 31 + index * 57 + 5) % 310);
  }
  spec.sampling.temperature = 0.0F;
  spec.sampling.max_tokens = max_tokens;
  spec.sampling.ignore_eos = true;
  return spec;
}

std::vector<std::vector<int32_t>> RunTogether(Engine& engine, size_t count, const SamplingParams& sampling) {
  std::vector<Submitted> submitted;
  for (size_t i = 0; i < count; ++i) {
    RequestSpec spec = Spec(i, sampling.max_tokens);
    spec.sampling = sampling;
    submitted.push_back(SubmitTo(engine, std::move(spec)));
  }
  std::vector<std::vector<int32_t>> tokens;
  for (const Submitted& request : submitted) {
    EXPECT_EQ(request.output->Wait(), FinishReason::kLength);
    tokens.push_back(request.output->TokenIds());
  }
  return tokens;
}

void ExpectAllBlocksFree(const Engine& engine) {
  const EngineStats stats = engine.Stats();
  EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total);
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 0);
}

TEST(EngineTest, BatchingChangesNoToken) {
  auto engine = MakeEngine(SmallOptions());
  const SamplingParams greedy = Spec(0, 20).sampling;
  const auto together = RunTogether(*engine, 12, greedy);
  for (size_t i = 0; i < 12; ++i) {
    const Submitted alone = SubmitTo(*engine, Spec(i, 20));
    EXPECT_EQ(alone.output->Wait(), FinishReason::kLength);
    EXPECT_EQ(alone.output->TokenIds(), together[i]);
  }
  ExpectAllBlocksFree(*engine);
}

TEST(EngineTest, PreemptionLosesNothing) {
  SamplingParams sampled = Spec(0, 60).sampling;
  sampled.temperature = 0.9F;
  sampled.seed = 5;
  sampled.presence_penalty = 0.5F;
  auto ample = MakeEngine(SmallOptions());
  const auto expected = RunTogether(*ample, 10, sampled);
  EXPECT_EQ(ample->Stats().preemptions, 0U);

  EngineOptions tight = SmallOptions();
  tight.gpu_kv_cache = CacheSize{.unit = CacheSize::Unit::kTokens, .amount = 320};
  tight.max_model_len = 256;
  auto engine = MakeEngine(tight);
  EXPECT_EQ(RunTogether(*engine, 10, sampled), expected);
  EXPECT_GT(engine->Stats().preemptions, 0U);
  EXPECT_EQ(engine->Stats().prompt_tokens, ample->Stats().prompt_tokens);
  ExpectAllBlocksFree(*engine);
}

TEST(EngineTest, SeedsRepeatAndDiffer) {
  auto engine = MakeEngine(SmallOptions());
  const auto run = [&](uint64_t seed) {
    RequestSpec spec = Spec(3, 24);
    spec.sampling.temperature = 1.0F;
    spec.sampling.seed = seed;
    const Submitted request = SubmitTo(*engine, std::move(spec));
    request.output->Wait();
    return request.output->TokenIds();
  };
  const auto first = run(1);
  EXPECT_EQ(run(1), first);
  EXPECT_NE(run(2), first);
}

TEST(EngineTest, StopTokenEndsAndMinTokensDefersIt) {
  auto engine = MakeEngine(SmallOptions());
  const Submitted plain = SubmitTo(*engine, Spec(1, 16));
  plain.output->Wait();
  const std::vector<int32_t> tokens = plain.output->TokenIds();

  RequestSpec stopping = Spec(1, 16);
  stopping.sampling.stop_token_ids = {tokens[4]};
  const Submitted stopped = SubmitTo(*engine, stopping);
  EXPECT_EQ(stopped.output->Wait(), FinishReason::kStop);
  EXPECT_EQ(stopped.output->stop_token_id(), tokens[4]);
  EXPECT_EQ(stopped.output->TokenIds().back(), tokens[4]);
  EXPECT_LE(stopped.output->TokenIds().size(), 5U);

  stopping.sampling.min_tokens = 10;
  const Submitted deferred = SubmitTo(*engine, stopping);
  deferred.output->Wait();
  const std::vector<int32_t> later = deferred.output->TokenIds();
  ASSERT_GE(later.size(), 10U);
  for (size_t i = 0; i < 10; ++i) EXPECT_NE(later[i], tokens[4]);
}

TEST(EngineTest, LogprobsAreSortedAndMatchGreedy) {
  auto engine = MakeEngine(SmallOptions());
  RequestSpec spec = Spec(2, 8);
  spec.sampling.num_top_logprobs = 3;
  const Submitted request = SubmitTo(*engine, std::move(spec));
  request.output->Wait();
  for (const SampledToken& token : request.output->tokens()) {
    ASSERT_EQ(token.top_logprobs.size(), 3U);
    EXPECT_EQ(token.top_logprobs[0].token, token.token);
    EXPECT_FLOAT_EQ(token.top_logprobs[0].logprob, token.logprob);
    EXPECT_EQ(token.rank, 1);
    EXPECT_GE(token.top_logprobs[0].logprob, token.top_logprobs[1].logprob);
    EXPECT_GE(token.top_logprobs[1].logprob, token.top_logprobs[2].logprob);
    EXPECT_LT(token.logprob, 0.0F);
  }
}

TEST(EngineTest, BadRequestsAreRefusedAndNamed) {
  auto engine = MakeEngine(SmallOptions());
  const auto param_of = [&](RequestSpec spec) {
    const auto id = engine->Submit(std::move(spec), [](const RequestOutput&) { ADD_FAILURE(); });
    EXPECT_FALSE(id.ok());
    return id.ok() ? "" : id.error().param;
  };
  RequestSpec spec = Spec(0, 4);
  spec.prompt_tokens.clear();
  EXPECT_EQ(param_of(spec), "prompt");
  spec = Spec(0, 4);
  spec.prompt_tokens[1] = 100000;
  EXPECT_EQ(param_of(spec), "prompt");
  spec = Spec(0, 4);
  spec.prompt_tokens.resize(600, 1);
  EXPECT_EQ(param_of(spec), "prompt");
  spec = Spec(0, 512);
  EXPECT_EQ(param_of(spec), "max_tokens");
  spec = Spec(0, 4);
  spec.sampling.temperature = -1.0F;
  EXPECT_EQ(param_of(spec), "temperature");
  const Submitted good = SubmitTo(*engine, Spec(0, 4));
  EXPECT_EQ(good.output->Wait(), FinishReason::kLength);
}

TEST(EngineTest, ContextEndsARequestExactly) {
  EngineOptions options = SmallOptions();
  options.max_model_len = 40;
  auto engine = MakeEngine(options);
  RequestSpec spec = Spec(0, 37);
  ASSERT_EQ(spec.prompt_tokens.size(), 3U);
  const Submitted request = SubmitTo(*engine, std::move(spec));
  EXPECT_EQ(request.output->Wait(), FinishReason::kLength);
  EXPECT_EQ(request.output->TokenIds().size(), 37U);
}

// Whoever waits for what was refused is told why.
TEST(EngineTest, APromptLongerThanTheContextEndsWithOneSentence) {
  EngineOptions options = SmallOptions();
  options.max_model_len = 40;
  auto engine = MakeEngine(options);
  RequestSpec spec = Spec(0, 1);
  spec.prompt_tokens.assign(41, 5);
  Submitted refused;
  EXPECT_NONFATAL_FAILURE(refused = SubmitTo(*engine, spec), "the context is 40 tokens");
  EXPECT_EQ(refused.output->Wait(), FinishReason::kError);
  EXPECT_EQ(refused.output->error_message(),
            "the context is 40 tokens; 42 were requested (41 in the prompt, 1 to generate)");
}

TEST(EngineTest, QueueFullIsRefusedAndTheRestServed) {
  EngineOptions options = SmallOptions();
  options.max_num_seqs = 1;
  options.max_num_queued_reqs = 3;
  auto engine = MakeEngine(options);
  std::vector<std::shared_ptr<Collected>> accepted;
  int refused = 0;
  for (size_t i = 0; i < 40; ++i) {
    auto collected = std::make_shared<Collected>();
    const auto id = engine->Submit(Spec(i, 30), collected->Callback(collected));
    if (id.ok()) {
      accepted.push_back(collected);
    } else {
      EXPECT_EQ(id.error().code, ErrorCode::kResourceExhausted);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  for (const auto& collected : accepted) EXPECT_EQ(collected->Wait(), FinishReason::kLength);
  EXPECT_EQ(engine->Stats().rejected_requests, static_cast<uint64_t>(refused));
}

TEST(EngineTest, DrainFinishesWhatRunsAndRefusesMore) {
  auto engine = MakeEngine(SmallOptions());
  const Submitted running = SubmitTo(*engine, Spec(1, 100));
  engine->Drain();
  EXPECT_EQ(running.output->Wait(), FinishReason::kLength);
  EXPECT_EQ(running.output->TokenIds().size(), 100U);
  const auto refused = engine->Submit(Spec(1, 1), [](const RequestOutput&) { ADD_FAILURE(); });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

TEST(EngineTest, DestructionCancelsWhatRuns) {
  auto engine = MakeEngine(SmallOptions());
  const Submitted running = SubmitTo(*engine, Spec(1, 400));
  running.output->WaitForTokens(2);
  engine.reset();
  EXPECT_EQ(running.output->Wait(), FinishReason::kCancelled);
}

TEST(EngineTest, ClearErrorsForBadOptions) {
  const auto error_of = [](void (*change)(EngineOptions*)) {
    EngineOptions options = SmallOptions();
    change(&options);
    auto engine = Engine::Create(options);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? std::string() : engine.error().message;
  };
  EXPECT_NE(error_of([](EngineOptions* o) { o->model = "/no/such/model"; }).find("/no/such/model"),
            std::string::npos);
#ifndef TANDEM_CUDA
  EXPECT_NE(error_of([](EngineOptions* o) { o->device = "cuda"; }).find("cuda"), std::string::npos);
#endif
  EXPECT_NE(error_of([](EngineOptions* o) { o->device = "tpu"; }).find("'tpu' is neither host nor cuda"),
            std::string::npos);
  EXPECT_NE(error_of([](EngineOptions* o) { o->strategy = "fastest"; }).find("fastest"), std::string::npos);
  EXPECT_NE(error_of([](EngineOptions* o) { o->dtype = DType::kF16; }).find("fp16"), std::string::npos);
  EXPECT_NE(error_of([](EngineOptions* o) { o->kv_cache_dtype = "int4"; }).find("--kv-cache-dtype: 'int4'"),
            std::string::npos);
  EXPECT_NE(error_of([](EngineOptions* o) { o->max_model_len = 1 << 20; }).find("max-model-len"),
            std::string::npos);
  EXPECT_NE(error_of([](EngineOptions* o) {
              o->gpu_kv_cache = CacheSize{CacheSize::Unit::kBytes, 10};
            }).find("too small"),
            std::string::npos);
  EXPECT_NE(error_of([](EngineOptions* o) {
              o->gpu_kv_cache = CacheSize{CacheSize::Unit::kBytes, int64_t{1} << 50};
            }).find("gpu tier"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
