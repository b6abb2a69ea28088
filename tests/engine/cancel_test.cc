// A thousand requests with random cancels from several threads: every block comes back.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/sanitizers.h"
#include "base/seeds_testing.h"
#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"

namespace tandem {
namespace {

EngineOptions TightOptions() {
  EngineOptions options;
  options.strategy = "gpu-only";
  options.model = FixturePath("families/llama2/model.gguf");
  options.dtype = DType::kF32;
  options.cpu_threads = 2;
  options.gpu_kv_cache =
      CacheSize{.unit = CacheSize::Unit::kTokens, .amount = 1024};  // small: preemptions too
  options.max_model_len = 400;
  options.max_num_batched_tokens = 64;
  options.max_num_queued_reqs = 4096;
  options.show_progress = false;
  options.cpu_trial = false;
  return options;
}

class RandomCancelTest : public ::testing::TestWithParam<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, RandomCancelTest, ::testing::ValuesIn(SeedsToTry(100, 20)));

TEST_P(RandomCancelTest, ThousandRequestsWithCancelsLeakNothing) {
  auto created = Engine::Create(TightOptions());
  ASSERT_TRUE(created.ok()) << created.error().message;
  Engine& engine = **created;
  const EngineStats start = engine.Stats();
  ASSERT_EQ(start.gpu_blocks_free, start.gpu_blocks_total);
  constexpr int kThreads = 4;
  constexpr int kRequestsPerThread = kSanitized ? 60 : 250;
  std::atomic<int> num_cancelled{0};
  std::atomic<int> num_finished{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&engine, &num_cancelled, &num_finished, t] {
      std::mt19937 random(GetParam() + static_cast<uint32_t>(t));
      std::vector<Submitted> in_flight;
      for (int i = 0; i < kRequestsPerThread; ++i) {
        RequestSpec spec;
        spec.prompt_tokens.resize(1 + random() % 120);
        for (int32_t& token : spec.prompt_tokens) token = static_cast<int32_t>(random() % 320);
        spec.sampling.max_tokens = 1 + static_cast<int64_t>(random() % 40);
        spec.sampling.temperature = 1.0F;
        in_flight.push_back(SubmitTo(engine, std::move(spec)));
        const unsigned action = random() % 4;
        if (action == 0) engine.Cancel(in_flight.back().id);  // most likely still waiting
        if (action == 1) {
          in_flight.back().output->WaitForTokens(1 + random() % 4);
          engine.Cancel(in_flight.back().id);
          engine.Cancel(in_flight.back().id);
        }
        if (action == 2 && in_flight.size() > 2) engine.Cancel(in_flight[random() % in_flight.size()].id);
      }
      for (const Submitted& request : in_flight) {
        (request.output->Wait() == FinishReason::kCancelled ? num_cancelled : num_finished).fetch_add(1);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_cancelled + num_finished, kThreads * kRequestsPerThread);
  EXPECT_GT(num_cancelled, kThreads * kRequestsPerThread / 10);
  EXPECT_GT(num_finished, kThreads * kRequestsPerThread / 10);
  const EngineStats end = engine.Stats();
  EXPECT_EQ(end.gpu_blocks_free, start.gpu_blocks_free);
  EXPECT_EQ(end.num_running, 0);
  EXPECT_EQ(end.num_waiting, 0);
}

TEST(CancelTest, CancelFreesBlocksWithinTwoIterations) {
  auto created = Engine::Create(TightOptions());
  ASSERT_TRUE(created.ok()) << created.error().message;
  Engine& engine = **created;
  for (int round = 0; round < 20; ++round) {
    RequestSpec spec;
    spec.prompt_tokens.assign(100, 7);
    spec.sampling.max_tokens = 300;
    spec.sampling.ignore_eos = true;
    auto victim = std::make_shared<Collected>();
    uint64_t iterations_at_end = 0;
    const auto id =
        engine.Submit(spec, victim->Callback(victim, [&] { iterations_at_end = engine.Stats().iterations; }));
    ASSERT_TRUE(id.ok());
    const Submitted other = SubmitTo(engine, spec);
    victim->WaitForTokens(1);
    other.output->WaitForTokens(1);
    engine.Cancel(*id);
    const uint64_t iterations_at_cancel = engine.Stats().iterations;
    EXPECT_EQ(victim->Wait(), FinishReason::kCancelled);
    // The blocks are free before the callback says so.
    EXPECT_LE(iterations_at_end, iterations_at_cancel + 2);
    engine.Cancel(other.id);
    EXPECT_EQ(other.output->Wait(), FinishReason::kCancelled);
    EXPECT_EQ(engine.Stats().gpu_blocks_free, engine.Stats().gpu_blocks_total);
  }
}

// CancelAll concerns what was there when it was called, also if that has just ended by itself.
TEST(CancelTest, RequestsAfterCancelAllAreNotCancelled) {
  auto created = Engine::Create(TightOptions());
  ASSERT_TRUE(created.ok()) << created.error().message;
  constexpr int kRounds = 500;
  for (int round = 0; round < kRounds; ++round) {
    RequestSpec spec;
    spec.prompt_tokens = {1, 2, 3};
    spec.sampling.max_tokens = 1;
    spec.sampling.ignore_eos = true;
    const Submitted submitted = SubmitTo(**created, std::move(spec));
    ASSERT_EQ(submitted.output->Wait(), FinishReason::kLength) << "round " << round;
    (*created)->CancelAll();
  }
}

TEST(CancelTest, CancelAllFromAnotherThread) {
  auto created = Engine::Create(TightOptions());
  ASSERT_TRUE(created.ok()) << created.error().message;
  Engine& engine = **created;
  std::vector<Submitted> submitted;
  for (int i = 0; i < 30; ++i) {
    RequestSpec spec;
    spec.prompt_tokens.assign(50, i);
    spec.sampling.max_tokens = 300;
    spec.sampling.ignore_eos = true;
    submitted.push_back(SubmitTo(engine, spec));
  }
  submitted[0].output->WaitForTokens(2);
  engine.CancelAll();
  EXPECT_EQ(engine.Stats().gpu_blocks_free, engine.Stats().gpu_blocks_total);
  for (const Submitted& request : submitted) EXPECT_EQ(request.output->Wait(), FinishReason::kCancelled);
}

}  // namespace
}  // namespace tandem
