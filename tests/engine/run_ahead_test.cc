// Iterations that are enqueued while the one before runs: the same tokens as without, whatever ends a request
// in the meantime, and every block comes back.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitizers.h"
#include "base/seeds_testing.h"
#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"

namespace tandem {
namespace {

EngineOptions Options(bool async_scheduling, int64_t gpu_tokens = 8192) {
  EngineOptions options;
  options.strategy = "gpu-only";
  options.model = FixturePath("families/llama2/model.gguf");
  options.dtype = DType::kF32;
  options.cpu_threads = 2;
  options.gpu_kv_cache = SizeInTokens(gpu_tokens);
  options.max_model_len = 256;
  options.max_num_batched_tokens = 64;
  options.max_num_queued_reqs = 4096;
  options.show_progress = false;
  options.cpu_trial = false;
  options.async_scheduling = async_scheduling;
  return options;
}

std::unique_ptr<Engine> StartEngine(const EngineOptions& options) {
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return engine.ok() ? std::move(*engine) : nullptr;
}

RequestSpec Greedy(size_t prompt_len, int64_t max_tokens, uint32_t seed = 1) {
  std::mt19937 random(seed);
  RequestSpec spec;
  for (size_t i = 0; i < prompt_len; ++i) spec.prompt_tokens.push_back(static_cast<int32_t>(random() % 300));
  spec.sampling.temperature = 0;
  spec.sampling.max_tokens = max_tokens;
  spec.sampling.ignore_eos = true;
  return spec;
}

// Of every kind, those that the host has to see each token of included.
RequestSpec AnyRequest(uint32_t seed, bool with_penalties) {
  std::mt19937 random(seed);
  RequestSpec spec = Greedy(1 + random() % 100, 1 + static_cast<int64_t>(random() % 50), seed);
  SamplingParams& sampling = spec.sampling;
  sampling.seed = seed;
  if (random() % 2 == 0) sampling.temperature = 1.2F;
  if (random() % 3 == 0) sampling.top_p = 0.9F;
  if (random() % 3 == 0) sampling.top_k = 20;
  if (random() % 4 == 0) sampling.min_p = 0.02F;
  if (random() % 4 == 0) sampling.num_top_logprobs = 3;
  if (random() % 3 == 0) sampling.logit_bias = {{static_cast<int32_t>(random() % 300), 2.0F}};
  if (random() % 2 == 0) {
    for (int i = 0; i < 8; ++i) sampling.stop_token_ids.push_back(static_cast<int32_t>(random() % 300));
    sampling.min_tokens = static_cast<int64_t>(random() % 6) % (sampling.max_tokens + 1);
  }
  if (!with_penalties) return spec;
  const unsigned kind = random() % 8;
  if (kind == 0) sampling.presence_penalty = 0.7F;
  if (kind == 1) sampling.repetition_penalty = 1.3F;
  if (kind == 2) sampling.bad_words = {{5, 6}, {7}};
  if (kind == 3) sampling.num_prompt_top_logprobs = 1;
  return spec;
}

void ExpectNothingHeld(Engine& engine) {
  const EngineStats stats = engine.Stats();
  EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total);
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 0);
}

struct Outcome {
  FinishReason reason = FinishReason::kNone;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Outcome&) const = default;
};

Outcome OutcomeOf(const Submitted& request) {
  Outcome answer{.reason = request.output->Wait(), .tokens = request.output->TokenIds(), .logprobs = {}};
  for (const SampledToken& token : request.output->tokens()) answer.logprobs.push_back(token.logprob);
  return answer;
}

std::vector<Outcome> OutcomesOf(Engine& engine, const std::vector<RequestSpec>& specs) {
  std::vector<Submitted> submitted;
  for (const RequestSpec& spec : specs) submitted.push_back(SubmitTo(engine, spec));
  std::vector<Outcome> answers;
  for (const Submitted& each : submitted) answers.push_back(OutcomeOf(each));
  return answers;
}

TEST(RunAheadTest, DecodesFollowEachOtherWithoutTheHost) {
  const auto engine = StartEngine(Options(true));
  OutcomesOf(*engine, {Greedy(20, 100), Greedy(30, 100, 2)});
  const EngineStats stats = engine->Stats();
  // All but the first, and those that were late.
  EXPECT_GT(stats.iterations_ahead, stats.iterations / 2);
  EXPECT_GE(stats.iterations, 100U);
}

TEST(RunAheadTest, WithoutAsyncSchedulingNoneDoes) {
  const auto engine = StartEngine(Options(false));
  OutcomesOf(*engine, {Greedy(20, 30), Greedy(30, 30, 2)});
  EXPECT_EQ(engine->Stats().iterations_ahead, 0U);
}

class RunAheadSeedTest : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RunAheadSeedTest, ::testing::ValuesIn(SeedsToTry(1, 12)));

// At fp32 on a GPU the same tokens, if not the same bits.
TEST(RunAheadTest, SameTokensOnAGpu) {
  if (!DecoderHarness::HasCuda()) GTEST_SKIP() << "no GPU";
  std::vector<RequestSpec> specs;
  for (uint32_t i = 0; i < 60; ++i) specs.push_back(AnyRequest(5000 + i, i % 8 == 0));
  for (const bool greedy : {false, true}) {
    EngineOptions options = Options(false);
    options.device = "cuda";
    for (RequestSpec& spec : specs) {
      if (greedy) spec.sampling.temperature = 0;
    }
    const auto expected = OutcomesOf(*StartEngine(options), specs);
    for (const int64_t gpu_tokens : {8192, 512}) {
      options.async_scheduling = true;
      options.gpu_kv_cache = SizeInTokens(gpu_tokens);
      const auto engine = StartEngine(options);
      const auto outcomes = OutcomesOf(*engine, specs);
      for (size_t i = 0; i < specs.size(); ++i)
        EXPECT_EQ(outcomes[i].tokens, expected[i].tokens) << "request " << i << ", " << gpu_tokens;
      EXPECT_GT(engine->Stats().iterations_ahead, 0U);
      ExpectNothingHeld(*engine);
    }
  }
}

// 8192: room for all; 320: preemptions, and blocks that are free only once others have ended.
TEST_P(RunAheadSeedTest, SameAnswersAsWithout) {
  for (const bool with_penalties : {false, true}) {
    std::vector<RequestSpec> specs;
    for (uint32_t i = 0; i < (kSanitized ? 20 : 60); ++i)
      specs.push_back(AnyRequest(1000 * GetParam() + i, with_penalties));
    // Outlasts them: with room for all one with penalties may be there from the first iteration on.
    specs.push_back(Greedy(20, 100));
    const auto expected = OutcomesOf(*StartEngine(Options(false)), specs);
    for (const int64_t gpu_tokens : {8192, 320}) {
      const auto engine = StartEngine(Options(true, gpu_tokens));
      const auto answers = OutcomesOf(*engine, specs);
      for (size_t i = 0; i < specs.size(); ++i)
        EXPECT_EQ(answers[i], expected[i]) << "request " << i << ", " << gpu_tokens << " tokens";
      const EngineStats stats = engine->Stats();
      EXPECT_GT(stats.iterations_ahead, 0U);
      if (gpu_tokens == 320) {
        EXPECT_GT(stats.preemptions, 0U);
      }
      ExpectNothingHeld(*engine);
    }
  }
}

// Where blocks are short, a request that waits is given those of one that ends with the iteration that runs.
TEST(RunAheadTest, WhoEndsByLengthLeavesItsBlocksInTime) {
  std::vector<RequestSpec> specs;
  for (uint32_t i = 0; i < 30; ++i) specs.push_back(Greedy(60, 4 + i % 5, i));
  const auto expected = OutcomesOf(*StartEngine(Options(false)), specs);
  // Two requests, and the blocks that are kept free.
  const auto engine = StartEngine(Options(true, 224));
  EXPECT_EQ(OutcomesOf(*engine, specs), expected);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.preemptions, 0U);
  EXPECT_GT(stats.iterations_ahead, stats.iterations * 2 / 3);
  ExpectNothingHeld(*engine);
}

// The row behind its last token is for nobody, and another one's blocks.
TEST(RunAheadTest, AStopTokenFoundLateEndsThere) {
  const std::vector<int32_t> tokens = OutcomesOf(*StartEngine(Options(false)), {Greedy(20, 60)})[0].tokens;
  const RequestSpec neighbour = Greedy(33, 80, 9);
  const Outcome alone = OutcomesOf(*StartEngine(Options(false)), {neighbour})[0];
  const auto engine = StartEngine(Options(true, 384));
  for (size_t at = 0; at < tokens.size(); at += 3) {
    RequestSpec stops = Greedy(20, 60);
    stops.sampling.stop_token_ids = {tokens[at]};
    const auto first = std::find(tokens.begin(), tokens.end(), tokens[at]);
    const auto answers = OutcomesOf(*engine, {stops, neighbour});
    EXPECT_EQ(answers[0].reason, FinishReason::kStop);
    EXPECT_EQ(answers[0].tokens, std::vector<int32_t>(tokens.begin(), first + 1)) << at;
    EXPECT_EQ(answers[1], alone) << at;
    ExpectNothingHeld(*engine);
  }
  EXPECT_GT(engine->Stats().iterations_ahead, 0U);
}

// Cancelled after each number of tokens, alone (so that the iteration that runs is for nobody) and beside
// another; whoever comes next gets the blocks.
TEST(RunAheadTest, CancelsAtEveryPointLeaveNothing) {
  const RequestSpec next = Greedy(40, 20, 5);
  const Outcome expected = OutcomesOf(*StartEngine(Options(false)), {next})[0];
  const auto engine = StartEngine(Options(true, 256));
  int num_cancelled = 0;
  for (size_t count = 0; count < 30; ++count) {
    for (const bool beside : {false, true}) {
      const Submitted victim = SubmitTo(*engine, Greedy(30, 100));
      const Submitted other = beside ? SubmitTo(*engine, Greedy(10, 60, 3)) : Submitted{};
      victim.output->WaitForTokens(count);
      engine->Cancel(victim.id);
      const Submitted after = SubmitTo(*engine, next);
      // Where this thread is held up it has come to its end.
      const FinishReason reason = victim.output->Wait();
      EXPECT_TRUE(reason == FinishReason::kCancelled || reason == FinishReason::kLength);
      if (reason == FinishReason::kCancelled) ++num_cancelled;
      EXPECT_EQ(OutcomeOf(after), expected) << count;
      if (beside) {
        EXPECT_EQ(other.output->Wait(), FinishReason::kLength);
      }
      ExpectNothingHeld(*engine);
    }
  }
  EXPECT_GT(num_cancelled, 20);
}

// One that runs, one that may be enqueued behind it already, and its own.
TEST(RunAheadTest, AnArrivalWaitsForTwoIterationsAtMost) {
  const auto engine = StartEngine(Options(true));
  const Submitted running = SubmitTo(*engine, Greedy(10, 240));
  running.output->WaitForTokens(3);
  for (uint32_t round = 0; round < 20; ++round) {
    std::atomic<uint64_t> iterations_at_first{0};
    const auto id = engine->Submit(Greedy(20, 1, round), [&](const RequestOutput& /*output*/) {
      iterations_at_first = engine->Stats().iterations;
      iterations_at_first.notify_all();
    });
    ASSERT_TRUE(id.ok());
    const uint64_t at_submission = engine->Stats().iterations;
    iterations_at_first.wait(0);
    // What is published lags by the iteration whose outputs are on their way.
    EXPECT_LE(iterations_at_first, at_submission + 4) << round;
  }
  engine->CancelAll();
  ExpectNothingHeld(*engine);
}

// What has been asked for while an iteration was under way: a mix of all of the above from several threads,
// in little room. Whoever was not cancelled has the answer that it gets alone.
TEST_P(RunAheadSeedTest, RandomMixesLeakNothing) {
  const auto engine = StartEngine(Options(true, 640));
  const auto reference = StartEngine(Options(false));
  const int kRequests = kSanitized ? 40 : 120;
  std::vector<std::thread> clients;
  for (uint32_t t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937 random(100 * GetParam() + t);
      std::vector<std::pair<Submitted, RequestSpec>> kept;
      for (int i = 0; i < kRequests; ++i) {
        RequestSpec spec = AnyRequest(static_cast<uint32_t>(random()), random() % 8 == 0);
        const Submitted request = SubmitTo(*engine, spec);
        const unsigned action = random() % 4;
        if (action == 0) {
          request.output->WaitForTokens(random() % 5);
          engine->Cancel(request.id);
        } else {
          kept.emplace_back(request, std::move(spec));
        }
        if (action == 1) request.output->WaitForTokens(1 + random() % 10);
      }
      for (const auto& [request, spec] : kept) {
        const Outcome answer = OutcomeOf(request);
        if (random() % 4 == 0) {
          EXPECT_EQ(answer, OutcomeOf(SubmitTo(*reference, spec)));
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  engine->CancelAll();
  ExpectNothingHeld(*engine);
  const EngineStats stats = engine->Stats();
  EXPECT_GT(stats.iterations_ahead, 0U);
  EXPECT_GT(stats.preemptions, 0U);
  // By the device's clock nothing runs twice at a time.
  EXPECT_GE(stats.gpu_gap_seconds, 0);
  EXPECT_LE(stats.gpu_busy_seconds, stats.busy_seconds);
}

// With a cpu tier in use iterations take turns with those that are enqueued ahead.
TEST_P(RunAheadSeedTest, HybridsGiveTheSameAnswers) {
  std::vector<RequestSpec> specs;
  for (uint32_t i = 0; i < 24; ++i) specs.push_back(AnyRequest(3000 * GetParam() + i, i % 6 == 0));
  const auto expected = OutcomesOf(*StartEngine(Options(false)), specs);
  for (const std::string strategy : {"asymmetric", "async", "auto"}) {
    EngineOptions options = Options(true, 320);
    options.strategy = strategy;
    options.cpu_kv_cache = SizeInTokens(4096);
    options.cache_folder = ::testing::TempDir();
    const auto engine = StartEngine(options);
    const auto answers = OutcomesOf(*engine, specs);
    for (size_t i = 0; i < specs.size(); ++i)
      EXPECT_EQ(answers[i], expected[i]) << strategy << ", request " << i;
    ExpectNothingHeld(*engine);
  }
}

}  // namespace
}  // namespace tandem
