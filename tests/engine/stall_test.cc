// CPU attention that does not come back, through the engine loop: whom it serves ends in an error, everyone
// else goes on, and once it is back the cpu tier serves again.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/engine_client.h"
#include "engine/engine_loop.h"
#include "engine/held_workers.h"
#include "perf/corrected_costs.h"
#include "policy/strategy.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kStallTimeout{100};
constexpr std::chrono::seconds kTestLimit{240};
constexpr int64_t kGpuBlocks = 4;
constexpr int64_t kCpuBlocks = 64;
constexpr char kMessage[] = "CPU attention did not answer in time";

// Ends the process, not only the test, if the test takes longer than that.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit)
      : thread_([this, limit] {
          std::unique_lock lock(mutex_);
          const bool in_time = ended_changed_.wait_for(lock, limit, [this] { return ended_; });
          TANDEM_CHECK(in_time, "the test hangs");
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    ended_changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
  std::thread thread_;
};

// A machine whose CPU attention hides behind the linear operations, whatever it is given.
CostTable CheapCpuAttention(int64_t num_layers) {
  auto table = CostTable::Create({.num_layers = num_layers,
                                  .linear = {{1, 1000}, {512, 1000}, {1024, 2000}},
                                  .gpu_decode_attention = {{1, {{32, 10}, {1024, 20}}}},
                                  .prefill_attention = {{1, {{32, 1}, {1024, 2}}}},
                                  .outside_layers = {{0, 10}, {64, 20}},
                                  .cpu_attention = {{1, {{32, 1}, {4096, 10}}}},
                                  .exchange = {{1, 1}, {64, 2}},
                                  .swap = {{1, 1}, {1024, 10}}});
  TANDEM_CHECK(table.ok(), "{}", table.error().message);
  return std::move(table).value();
}

// An engine loop on a model and a cache so small that the work needs both tiers.
class LoopBench {
 public:
  explicit LoopBench(const std::string& strategy, int64_t gpu_blocks = kGpuBlocks)
      : harness_(FixturePath("families/llama3"),
                 {.gpu_blocks = gpu_blocks, .cpu_blocks = kCpuBlocks, .stall_timeout = kStallTimeout}),
        table_(CheapCpuAttention(harness_.config().num_layers)),
        costs_(&table_) {
    auto created = CreateStrategy(strategy, &costs_);
    TANDEM_CHECK(created.ok(), "{}", created.error().message);
    strategy_ = std::move(created).value();
    StartLoop();
  }

  void StartLoop() {
    EngineLoopOptions options;
    options.limits = {.max_num_seqs = 64,
                      .max_num_batched_tokens = 256,
                      // So that the gpu tier takes one request, not as many as have room at first.
                      .reserve_blocks = kGpuBlocks,
                      .num_layers = harness_.config().num_layers,
                      .max_transit_tokens = 512,
                      .max_cohort_rows = 64};
    options.vocab_size = harness_.config().vocab_size;
    options.max_model_len = 512;
    options.max_num_queued_reqs = 1024;
    loop_ = std::make_unique<EngineLoop>(options, &harness_.device(), strategy_.get(), &harness_.books(),
                                         &harness_.workers(), &costs_);
  }
  void DestroyLoop() { loop_.reset(); }

  EngineLoop& loop() { return *loop_; }
  KvBooks& books() { return harness_.books(); }
  Executor& executor() { return harness_.executor(); }
  std::unique_ptr<HeldWorkers> HoldWorkers() {
    return std::make_unique<HeldWorkers>(harness_.executor().cpu_attention());
  }

  // After a stall and the return of the workers.
  void AwaitRecovery() {
    while (loop_->Stats().cpu_blocks_free < kCpuBlocks) std::this_thread::yield();
  }
  void ExpectAllBlocksFree() {
    loop_->CancelAll();
    for (const EngineStats stats = loop_->Stats(); const bool gpu : {true, false}) {
      EXPECT_EQ(gpu ? stats.gpu_blocks_free : stats.cpu_blocks_free,
                gpu ? stats.gpu_blocks_total : stats.cpu_blocks_total);
    }
  }

 private:
  DecoderHarness harness_;
  CostTable table_;
  CorrectedCosts costs_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<EngineLoop> loop_;
};

// Requests are told apart by a number.
RequestSpec Spec(int number, int64_t prompt_len, int64_t max_tokens) {
  RequestSpec spec;
  for (int64_t i = 0; i < prompt_len; ++i)
    spec.prompt_tokens.push_back(static_cast<int32_t>((i * 37 + number * 101 + 3) % 300));
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  spec.sampling.max_tokens = max_tokens;
  return spec;
}

// What the model says to them, computed without a cpu tier.
class ReferenceTokens {
 public:
  std::vector<std::vector<int32_t>> OfAll(const std::vector<RequestSpec>& specs) {
    std::vector<std::vector<int32_t>> tokens;
    tokens.reserve(specs.size());
    for (const RequestSpec& spec : specs) tokens.push_back(Of(spec));
    return tokens;
  }
  std::vector<int32_t> Of(const RequestSpec& spec) {
    const Submitted submitted = SubmitTo(bench_.loop(), spec);
    EXPECT_EQ(submitted.output->Wait(), FinishReason::kLength);
    return submitted.output->TokenIds();
  }

 private:
  LoopBench bench_{"gpu-only", 64};
};

// They arrive together: the engine thread waits in the last call of a request before them until all are
// there. One by one, on a busy machine, the stall may come before the last, which would then wait for its
// end.
std::vector<Submitted> SubmitAll(EngineLoop& loop, const std::vector<RequestSpec>& specs) {
  const auto waits = std::make_shared<std::promise<void>>();
  std::promise<void> all_are_there;
  const std::shared_future<void> go_on = all_are_there.get_future().share();
  const auto first = std::make_shared<Collected>();
  const auto on_last = [waits, go_on] {
    waits->set_value();
    go_on.wait();
  };
  EXPECT_TRUE(loop.Submit(Spec(9, 8, 1), first->Callback(first, on_last)).ok());
  waits->get_future().wait();
  std::vector<Submitted> submitted;
  submitted.reserve(specs.size());
  for (const RequestSpec& spec : specs) submitted.push_back(SubmitTo(loop, spec));
  all_are_there.set_value();
  return submitted;
}

bool IsPrefix(const std::vector<int32_t>& tokens, const std::vector<int32_t>& expected) {
  return tokens.size() <= expected.size() && std::equal(tokens.begin(), tokens.end(), expected.begin());
}

void ExpectServed(const Submitted& submitted, const std::vector<int32_t>& expected) {
  EXPECT_EQ(submitted.output->Wait(), FinishReason::kLength) << "request " << submitted.id;
  EXPECT_EQ(submitted.output->TokenIds(), expected) << "request " << submitted.id;
}

void ExpectFailed(const Submitted& submitted, const std::vector<int32_t>& expected) {
  EXPECT_EQ(submitted.output->Wait(), FinishReason::kError) << "request " << submitted.id;
  EXPECT_NE(submitted.output->error_message().find(kMessage), std::string::npos)
      << "request " << submitted.id << ": " << submitted.output->error_message();
  EXPECT_LT(submitted.output->TokenIds().size(), expected.size()) << "request " << submitted.id;
  EXPECT_TRUE(IsPrefix(submitted.output->TokenIds(), expected)) << "request " << submitted.id;
}

// The parameter: the strategy.
class EngineStallTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Only asymmetric decodes in the gpu tier while there is a cpu tier.
  bool UsesGpuTier() const { return GetParam() == "asymmetric"; }

  Watchdog watchdog_{kTestLimit};
  ReferenceTokens reference_;
};

TEST_P(EngineStallTest, FailsTheCpuTierServesTheGpuTierAndRecovers) {
  LoopBench bench(GetParam());
  EngineLoop& loop = bench.loop();

  // The first one takes the gpu tier, if the strategy decodes there, and fills it slowly.
  const RequestSpec first_spec = Spec(0, 10, 110);
  const Submitted first = SubmitTo(loop, first_spec);
  first.output->WaitForTokens(1);
  // The workers go when the last of the others is in the midst of it. Its callback blocks the engine thread
  // until they are held, so they are held before another iteration starts.
  std::vector<RequestSpec> specs = {Spec(1, 20, 100), Spec(2, 45, 100), Spec(3, 12, 100)};
  std::vector<Submitted> others = {SubmitTo(loop, specs[0]), SubmitTo(loop, specs[1])};
  std::unique_ptr<HeldWorkers> held;
  auto last = std::make_shared<Collected>();
  size_t num_tokens = 0;
  const auto id = loop.Submit(specs[2], [&bench, &held, &num_tokens, last](RequestOutput output) {
    num_tokens += output.tokens.size();
    if (num_tokens >= 4 && !held) held = bench.HoldWorkers();
    last->Take(std::move(output));
  });
  ASSERT_TRUE(id.ok());
  others.push_back({*id, last});

  for (size_t i = 0; i < others.size(); ++i) ExpectFailed(others[i], reference_.Of(specs[i]));
  EXPECT_GE(last->TokenIds().size(), 4U);
  if (!UsesGpuTier()) ExpectFailed(first, reference_.Of(first_spec));

  // CPU attention may still write to their blocks.
  EXPECT_FALSE(bench.executor().cpu_attention()->idle());
  EXPECT_LT(loop.Stats().cpu_blocks_free, kCpuBlocks);

  // Who comes now is served where there is room, in the gpu tier; what does not fit there waits.
  const RequestSpec small_spec = Spec(4, 30, 20);
  const RequestSpec large_spec = Spec(5, kGpuBlocks * 32 + 10, 20);
  const Submitted small = SubmitTo(loop, small_spec);
  const Submitted large = SubmitTo(loop, large_spec);
  if (UsesGpuTier()) ExpectServed(first, reference_.Of(first_spec));
  // The last of its tokens comes although whoever is left has to wait.
  ExpectServed(small, reference_.Of(small_spec));
  EXPECT_TRUE(large.output->TokenIds().empty());
  EXPECT_EQ(loop.Stats().num_waiting, 1);
  EXPECT_EQ(loop.Stats().gpu_blocks_free, kGpuBlocks);

  const uint64_t cpu_tier_tokens = loop.Stats().cpu_tier_tokens;
  held.reset();
  ExpectServed(large, reference_.Of(large_spec));
  for (size_t i = 0; i < specs.size(); ++i) others[i] = SubmitTo(loop, specs[i]);
  for (size_t i = 0; i < specs.size(); ++i) ExpectServed(others[i], reference_.Of(specs[i]));
  loop.Drain();
  EXPECT_GT(loop.Stats().cpu_tier_tokens, cpu_tier_tokens + 20);
  bench.ExpectAllBlocksFree();
}

// Workers that are gone before anyone decodes, and again after they came back; cancellations meanwhile.
TEST_P(EngineStallTest, AgainAndAgain) {
  LoopBench bench(GetParam());
  EngineLoop& loop = bench.loop();
  // Too long for the gpu tier: whatever the strategy, they live in the cpu tier.
  const std::vector<RequestSpec> specs = {Spec(0, 130, 20), Spec(1, 140, 20), Spec(2, 150, 20)};
  const std::vector<std::vector<int32_t>> expected = reference_.OfAll(specs);
  for (int round = 0; round < 3; ++round) {
    auto held = bench.HoldWorkers();
    std::vector<Submitted> submitted = SubmitAll(loop, specs);
    // Their prompts are computed all the same. One of them is cancelled in the midst of the stall.
    submitted[0].output->WaitForTokens(1);
    loop.Cancel(submitted[0].id);
    for (size_t i = 0; i < specs.size(); ++i) {
      const FinishReason reason = submitted[i].output->Wait();
      if (i == 0 && reason == FinishReason::kCancelled) continue;
      ExpectFailed(submitted[i], expected[i]);
    }
    const Submitted waiting = SubmitTo(loop, specs[0]);
    const Submitted cancelled = SubmitTo(loop, specs[1]);
    loop.Cancel(cancelled.id);
    EXPECT_EQ(cancelled.output->Wait(), FinishReason::kCancelled);
    if (round == 2) {
      loop.CancelAll();
      EXPECT_EQ(waiting.output->Wait(), FinishReason::kCancelled);
    }
    held.reset();
    if (round < 2) ExpectServed(waiting, expected[0]);
    bench.AwaitRecovery();  // also where nobody waits for it
    ExpectServed(SubmitTo(loop, specs[2]), expected[2]);
  }
  bench.ExpectAllBlocksFree();
}

// The loop ends without the workers, and a new one finds the executor as it should be.
TEST_P(EngineStallTest, LoopEndsWhileStalled) {
  for (const bool while_it_waits : {false, true}) {
    LoopBench bench(GetParam());
    const std::vector<RequestSpec> specs = {Spec(0, 130, 20), Spec(1, 140, 20), Spec(2, 30, 90)};
    const std::vector<std::vector<int32_t>> expected = reference_.OfAll(specs);
    auto held = bench.HoldWorkers();
    std::vector<Submitted> submitted = SubmitAll(bench.loop(), specs);
    submitted[0].output->WaitForTokens(1);
    std::vector<Submitted> late;
    if (!while_it_waits) {
      // After the stall, with requests that wait for the workers.
      submitted[0].output->Wait();
      late = {SubmitTo(bench.loop(), specs[0]), SubmitTo(bench.loop(), specs[2])};
    }
    bench.DestroyLoop();
    for (size_t i = 0; i < specs.size(); ++i) {
      EXPECT_NE(submitted[i].output->Wait(), FinishReason::kLength);
      EXPECT_TRUE(IsPrefix(submitted[i].output->TokenIds(), expected[i]));
    }
    for (const Submitted& each : late) EXPECT_EQ(each.output->Wait(), FinishReason::kCancelled);

    held.reset();
    while (!bench.executor().CpuTierUsable()) std::this_thread::yield();
    // Only blocks that CPU attention could still have written to are left behind.
    EXPECT_EQ(bench.books().free_blocks(Tier::kGpu), kGpuBlocks);
    for (const Submitted& each : submitted) bench.books().Release(each.id);
    EXPECT_EQ(bench.books().free_blocks(Tier::kCpu), kCpuBlocks);

    bench.StartLoop();
    for (size_t i = 0; i < specs.size(); ++i) submitted[i] = SubmitTo(bench.loop(), specs[i]);
    for (size_t i = 0; i < specs.size(); ++i) ExpectServed(submitted[i], expected[i]);
    bench.ExpectAllBlocksFree();
  }
}

// Workers that go at any moment, for a while or until someone fails, beside requests and cancellations from
// several threads: every request has one end, no token is wrong, and no block is lost.
TEST_P(EngineStallTest, AtAnyMoment) {
  constexpr int kClients = 3;
  constexpr int kRequestsPerClient = 40;
  LoopBench bench(GetParam());
  const std::vector<RequestSpec> specs = {Spec(0, 8, 30),  Spec(1, 140, 12), Spec(2, 40, 50),
                                          Spec(3, 70, 25), Spec(4, 3, 60),   Spec(5, 100, 20)};
  const std::vector<std::vector<int32_t>> expected = reference_.OfAll(specs);

  std::atomic<bool> done{false};
  std::atomic<int> num_errors{0};
  std::thread holder([&] {
    std::mt19937 random(3);
    const auto sleep_below = [&random](int64_t ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % static_cast<uint32_t>(ms)));
    };
    while (!done) {
      sleep_below(60);
      // Before: while they are held nothing but this stall fails.
      const int num_errors_before = num_errors;
      const auto held = bench.HoldWorkers();
      if (random() % 3 == 0) {
        sleep_below(kStallTimeout.count() / 2);
      } else {
        while (!done && num_errors == num_errors_before) sleep_below(10);
        sleep_below(30);
      }
    }
  });
  const auto submit = [&](const RequestSpec& spec) {
    auto collected = std::make_shared<Collected>();
    const auto id = bench.loop().Submit(spec, [&num_errors, collected](RequestOutput output) {
      if (output.finish_reason == FinishReason::kError) ++num_errors;
      collected->Take(std::move(output));
    });
    EXPECT_TRUE(id.ok());
    return Submitted{id.ok() ? *id : 0, collected};
  };
  std::atomic<int> num_served{0};
  std::atomic<int> num_failed{0};
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<unsigned>(17 + client));
      for (int i = 0; i < kRequestsPerClient; i += 2) {
        const size_t kept = random() % specs.size();
        const Submitted submitted = submit(specs[kept]);
        const Submitted neighbour = submit(specs[random() % specs.size()]);
        if (random() % 2 == 0) neighbour.output->WaitForTokens(random() % 5);
        bench.loop().Cancel(neighbour.id);
        if (submitted.output->Wait() == FinishReason::kError) {
          ExpectFailed(submitted, expected[kept]);
          ++num_failed;
        } else {
          ExpectServed(submitted, expected[kept]);
          ++num_served;
        }
        neighbour.output->Wait();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  done = true;
  holder.join();
  EXPECT_EQ(num_served + num_failed, kClients * kRequestsPerClient / 2);
  bench.AwaitRecovery();
  for (size_t i = 0; i < specs.size(); ++i) ExpectServed(SubmitTo(bench.loop(), specs[i]), expected[i]);
  bench.ExpectAllBlocksFree();
}

INSTANTIATE_TEST_SUITE_P(Strategies, EngineStallTest,
                         ::testing::Values("asymmetric", "full-offload", "symmetric", "simple-offload"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem
