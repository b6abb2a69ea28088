// Cohorts in flight through the engine loop: whatever a strategy does with them from one iteration to the
// next, and whoever is cancelled, everyone gets the tokens of the gpu tier alone, and every block comes back.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/sanitizers.h"
#include "base/seeds_testing.h"
#include "conformance/decoder_harness.h"
#include "conformance/fixtures.h"
#include "engine/engine_client.h"
#include "engine/engine_loop.h"
#include "engine/held_workers.h"
#include "policy/strategy.h"

namespace tandem {
namespace {

constexpr int kNumRequests = kSanitized ? 40 : 120;

constexpr int64_t kLayers = 4;
constexpr int64_t kMaxRiderRows = 3;
constexpr int64_t kMaxRunning = 12;

// Prompts go to either tier, one an iteration, those of the cpu tier whole or in chunks, with the main
// sub-batch or in a cohort in transit. In the cpu tier rows decode with the main sub-batch or enter cohorts;
// these ride, visit by themselves, stay where they are or are dropped, all at random. The tiers have room for
// all.
class RandomCohorts : public Strategy {
 public:
  explicit RandomCohorts(uint32_t seed) : Strategy(nullptr), random_(seed) {}
  std::string_view name() const override { return "async"; }
  bool uses_cpu_tier() const override { return true; }
  bool rides() const override { return true; }
  int64_t SteadyCpuRows(SteadyWork /*work*/) const override { return 0; }

  IterationPlan Plan(const ScheduleState& state, const CapacityView& capacity) override {
    IterationPlan plan;
    plan.strategy = name();
    std::unordered_set<SequenceId> in_flight;
    bool any_in_transit = false;
    for (const InFlightCohort& cohort : state.cohorts) {
      any_in_transit = any_in_transit || cohort.in_transit();
      if (OneIn(15)) {
        plan.dropped.push_back(cohort.cohort);
        continue;
      }
      for (const RowSpan& row : cohort.rows) in_flight.insert(row.sequence);
    }
    std::vector<RowSpan> gpu_rows;
    std::vector<RowSpan> cpu_rows;
    std::vector<RowSpan> chunks;  // to the cpu tier
    for (const ScheduledSequence& each : state.running) {
      if (in_flight.contains(each.id)) continue;
      if (!each.decoding()) {
        chunks.push_back(AnyChunk(each));
        continue;
      }
      Tier tier = *capacity.tier_of(each.id);
      if (tier == Tier::kCpu && plan.moves.empty() && OneIn(30) &&
          HasRoom(Tier::kGpu, each.num_tokens, state, capacity)) {
        plan.moves.push_back({each.id, Tier::kGpu});
        tier = Tier::kGpu;
      }
      (tier == Tier::kGpu ? gpu_rows : cpu_rows)
          .push_back(RowSpan::Decode(each.id, each.num_tokens - 1, tier));
    }
    if (!state.waiting.empty() && static_cast<int64_t>(state.running.size()) < kMaxRunning &&
        plan.moves.empty()) {
      const ScheduledSequence& first = state.waiting.front();
      const Tier tier = OneIn(3) ? Tier::kGpu : Tier::kCpu;
      if (HasRoom(tier, first.num_tokens, state, capacity)) {
        if (tier == Tier::kCpu) {
          chunks.push_back(AnyChunk(first));
        } else {
          plan.main.spans.push_back(
              RowSpan::Chunk(first.id, 0, first.num_tokens, first.first_logits(), tier));
        }
      }
    }
    // Each has a context of two blocks at most.
    chunks.resize(std::min<size_t>(chunks.size(), 3));
    if (!any_in_transit && !chunks.empty() && !OneIn(4)) {
      const auto num_rows = static_cast<int64_t>(1 + random_() % chunks.size());
      plan.cohorts.push_back({.cohort = next_id_++, .rows = {chunks.begin(), chunks.begin() + num_rows}});
      chunks.erase(chunks.begin(), chunks.begin() + num_rows);
    }
    // Of those in transit, which others may join later on.
    if (any_in_transit) chunks.resize(std::min<size_t>(chunks.size(), 1));
    plan.main.spans.insert(plan.main.spans.end(), chunks.begin(), chunks.end());
    plan.main.spans.insert(plan.main.spans.end(), gpu_rows.begin(), gpu_rows.end());
    for (size_t i = 0; i < cpu_rows.size();) {
      const size_t end = std::min(cpu_rows.size(), i + 1 + random_() % 2);
      if (OneIn(3)) {
        plan.main.spans.insert(plan.main.spans.end(), cpu_rows.begin() + static_cast<int64_t>(i),
                               cpu_rows.begin() + static_cast<int64_t>(end));
      } else {
        plan.cohorts.push_back({.cohort = next_id_++,
                                .rows = {cpu_rows.begin() + static_cast<int64_t>(i),
                                         cpu_rows.begin() + static_cast<int64_t>(end)}});
      }
      i = end;
    }
    for (const InFlightCohort& cohort : state.cohorts) {
      if (std::find(plan.dropped.begin(), plan.dropped.end(), cohort.cohort) == plan.dropped.end())
        plan.cohorts.push_back({.cohort = cohort.cohort, .rows = cohort.rows, .cursor = cohort.cursor});
    }
    std::vector<int64_t> riders(kLayers + 1);
    for (CohortStep& step : plan.cohorts) {
      int64_t& at_boundary = riders[static_cast<size_t>(step.cursor + 1)];
      const auto num_rows = static_cast<int64_t>(step.rows.size());
      if (!step.in_transit() && !plan.main.empty() && at_boundary + num_rows <= kMaxRiderRows && !OneIn(4)) {
        step.rides = true;
        step.visits = {{step.cursor, step.cursor}};
        at_boundary += num_rows;
      } else if (plan.main.empty() || OneIn(2)) {
        const int64_t last =
            step.cursor + static_cast<int64_t>(random_() % static_cast<uint64_t>(kLayers - step.cursor));
        for (int64_t layer = step.cursor; layer <= last; ++layer) step.visits.push_back({layer, layer});
      }
    }
    std::erase_if(plan.cohorts, [](const CohortStep& step) { return step.visits.empty(); });
    return plan;
  }

 private:
  bool OneIn(uint32_t n) { return random_() % n == 0; }
  // Of what is to be computed of a prompt in the cpu tier.
  RowSpan AnyChunk(const ScheduledSequence& sequence) {
    const int64_t left = sequence.num_tokens - sequence.num_computed;
    const int64_t num_tokens =
        OneIn(2) ? left : 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(left));
    return RowSpan::Chunk(sequence.id, sequence.num_computed, num_tokens, sequence.first_logits(),
                          Tier::kCpu);
  }
  // All that run may want a block.
  static bool HasRoom(Tier tier, int64_t num_tokens, const ScheduleState& state,
                      const CapacityView& capacity) {
    return capacity.BlocksFor(num_tokens) + static_cast<int64_t>(state.running.size()) <=
           capacity.free_blocks(tier);
  }

  std::mt19937 random_;
  CohortId next_id_ = 1;
};

class LoopWithCohorts {
 public:
  explicit LoopWithCohorts(std::unique_ptr<Strategy> strategy)
      : harness_(
            FixturePath("families/llama3"),
            {.gpu_blocks = 128, .cpu_blocks = 64, .max_rider_rows = kMaxRiderRows, .random_layers = kLayers}),
        strategy_(std::move(strategy)) {
    EngineLoopOptions options;
    options.limits = {.max_num_seqs = 64,
                      .max_num_batched_tokens = 300,
                      .reserve_blocks = 1,
                      .num_layers = kLayers,
                      .max_transit_tokens = 512,
                      .max_cohort_rows = 64,
                      .max_rider_rows = kMaxRiderRows};
    options.vocab_size = harness_.config().vocab_size;
    options.max_model_len = 256;
    options.max_num_queued_reqs = 1024;
    loop_ = std::make_unique<EngineLoop>(options, &harness_.device(), strategy_.get(), &harness_.books(),
                                         &harness_.workers(), nullptr);
  }
  EngineLoop& loop() { return *loop_; }
  CpuAttention* cpu_attention() { return harness_.executor().cpu_attention(); }

 private:
  DecoderHarness harness_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<EngineLoop> loop_;
};

std::unique_ptr<Strategy> GpuOnly() {
  auto strategy = CreateStrategy("gpu-only", nullptr);
  TANDEM_CHECK(strategy.ok(), "{}", strategy.error().message);
  return std::move(strategy).value();
}

RequestSpec Spec(int number) {
  RequestSpec spec;
  for (int64_t i = 0; i < 2 + number * 7 % 40; ++i)
    spec.prompt_tokens.push_back(static_cast<int32_t>((i * 37 + number * 101 + 3) % 300));
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  spec.sampling.max_tokens = 3 + number * 5 % 23;
  return spec;
}

void ExpectAllBlocksFree(EngineLoop& loop) {
  loop.CancelAll();
  const EngineStats stats = loop.Stats();
  EXPECT_EQ(stats.gpu_blocks_free, stats.gpu_blocks_total);
  EXPECT_EQ(stats.cpu_blocks_free, stats.cpu_blocks_total);
  EXPECT_EQ(stats.cpu_kv_tokens, 0);
  // Two of three prompts go there, and each takes a block of 32.
  EXPECT_GE(stats.max_cpu_kv_tokens, 3 * 32);
}

std::vector<std::vector<int32_t>> ExpectedTokens() {
  std::vector<std::vector<int32_t>> expected;
  LoopWithCohorts reference(GpuOnly());
  for (int i = 0; i < kNumRequests; ++i) {
    const Submitted submitted = SubmitTo(reference.loop(), Spec(i));
    EXPECT_EQ(submitted.output->Wait(), FinishReason::kLength);
    expected.push_back(submitted.output->TokenIds());
  }
  return expected;
}

void Print(const EngineStats& stats) {
  std::printf("%lu iterations, %lu visits of riders, %lu skipped, %lu of %lu tokens in the cpu tier\n",
              stats.iterations, stats.rider_visits, stats.rider_skips, stats.cpu_tier_tokens,
              stats.generation_tokens);
}

// The parameter: the seed.
class CohortLoopTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CohortLoopTest, AnythingGivesTheSameTokens) {
  const std::vector<std::vector<int32_t>> expected = ExpectedTokens();
  LoopWithCohorts bench(std::make_unique<RandomCohorts>(GetParam()));
  std::vector<Submitted> submitted;
  for (int i = 0; i < kNumRequests; ++i) submitted.push_back(SubmitTo(bench.loop(), Spec(i)));
  // Some leave amid a token; their cohort goes on.
  for (int i = 0; i < kNumRequests; i += 5) {
    submitted[static_cast<size_t>(i)].output->WaitForTokens(2);
    bench.loop().Cancel(submitted[static_cast<size_t>(i)].id);
  }
  int num_cancelled = 0;
  for (size_t i = 0; i < submitted.size(); ++i) {
    const FinishReason reason = submitted[i].output->Wait();
    const std::vector<int32_t> tokens = submitted[i].output->TokenIds();
    if (reason == FinishReason::kCancelled) ++num_cancelled;
    EXPECT_NE(reason, FinishReason::kError);
    ASSERT_LE(tokens.size(), expected[i].size());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected[i].begin())) << "request " << i;
    if (reason == FinishReason::kLength) {
      EXPECT_EQ(tokens.size(), expected[i].size());
    }
  }
  EXPECT_GT(num_cancelled, 0);
  EXPECT_GT(bench.loop().Stats().rider_visits, 100U);
  EXPECT_GT(bench.loop().Stats().transit_visits, kNumRequests / 8U);
  Print(bench.loop().Stats());
  ExpectAllBlocksFree(bench.loop());
}

// The CPU is away again and again: plans made ahead turn out wrong.
TEST_P(CohortLoopTest, SkippedVisitsAreMadeUpFor) {
  const std::vector<std::vector<int32_t>> expected = ExpectedTokens();
  LoopWithCohorts bench(std::make_unique<RandomCohorts>(GetParam()));
  std::atomic<bool> done{false};
  std::thread holder([&] {
    while (!done) {
      const HeldWorkers held(bench.cpu_attention());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  std::vector<Submitted> submitted;
  for (int i = 0; i < kNumRequests; ++i) submitted.push_back(SubmitTo(bench.loop(), Spec(i)));
  for (size_t i = 0; i < submitted.size(); ++i) {
    EXPECT_EQ(submitted[i].output->Wait(), FinishReason::kLength);
    EXPECT_EQ(submitted[i].output->TokenIds(), expected[i]) << "request " << i;
  }
  done = true;
  holder.join();
  EXPECT_GT(bench.loop().Stats().rider_skips, 0U);
  Print(bench.loop().Stats());
  ExpectAllBlocksFree(bench.loop());
}

INSTANTIATE_TEST_SUITE_P(Seeds, CohortLoopTest, ::testing::ValuesIn(SeedsToTry(1, 10)));

// Requests of 8 blocks: 14 leave the gpu tier (128 blocks) a block for each of them and one in reserve, 7
// leave the cpu tier (64) a twentieth.
TEST(AssumeComputedTest, FillsTheGpuTierThenTheCpuTierThenWaits) {
  LoopWithCohorts bench(std::make_unique<RandomCohorts>(4));
  ASSERT_EQ(bench.loop().Stats().block_size, 32);
  constexpr int kNumAssumed = 14 + 7;
  constexpr int kNumWaiting = 3;
  constexpr int kPromptLen = 235;
  constexpr int kOutputLen = 8;
  struct Tally {
    std::atomic<int> gpu_tokens{0};
    std::atomic<int> cpu_tokens{0};
    std::promise<void> all_are_there;
  };
  auto tally = std::make_shared<Tally>();
  const auto submit = [&](int prompt_len, int output_len, bool waits_for_all) {
    RequestSpec spec;
    spec.prompt_tokens.assign(static_cast<size_t>(prompt_len), 7);
    spec.sampling.temperature = 0;
    spec.sampling.ignore_eos = true;
    spec.sampling.max_tokens = output_len;
    auto collected = std::make_shared<Collected>();
    const auto id =
        bench.loop().SubmitBegun(spec, 0, [collected, tally, waits_for_all](RequestOutput output) {
          if (waits_for_all && collected->tokens().empty()) tally->all_are_there.get_future().wait();
          (output.cpu_tier ? tally->cpu_tokens : tally->gpu_tokens) += static_cast<int>(output.tokens.size());
          collected->Take(std::move(output));
        });
    EXPECT_TRUE(id.ok());
    return collected;
  };
  // While the engine thread hands out the first token of this one, the others come. A prompt of one token has
  // nothing to assume.
  std::vector<std::shared_ptr<Collected>> outputs = {submit(1, kOutputLen, true)};
  for (int i = 0; i < kNumAssumed + kNumWaiting; ++i)
    outputs.push_back(submit(kPromptLen, kOutputLen, false));
  tally->all_are_there.set_value();
  for (const auto& output : outputs) {
    EXPECT_EQ(output->Wait(), FinishReason::kLength);
    EXPECT_EQ(output->TokenIds().size(), kOutputLen);
  }
  const EngineStats stats = bench.loop().Stats();
  EXPECT_EQ(stats.prompt_tokens, 1 + kNumAssumed + kNumWaiting * kPromptLen);
  EXPECT_EQ(tally->gpu_tokens + tally->cpu_tokens, kOutputLen * (1 + kNumAssumed + kNumWaiting));
  // Nobody is moved out of the gpu tier; out of the cpu tier one in 30 may be, once there is room.
  EXPECT_GE(tally->gpu_tokens, 14 * kOutputLen);
  EXPECT_GE(tally->cpu_tokens, 7);
  EXPECT_EQ(stats.cpu_tier_tokens, static_cast<uint64_t>(tally->cpu_tokens));
  ExpectAllBlocksFree(bench.loop());
}

}  // namespace
}  // namespace tandem
