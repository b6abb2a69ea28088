// What the engine shows to those who watch it, and that it keeps nothing for nobody.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/fixtures.h"
#include "engine/engine.h"
#include "engine/engine_client.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;

constexpr size_t kNumLiveRequests = 60;  // four at a time
constexpr size_t kNumLiveSlots = 4;

std::unique_ptr<Engine> MakeWatchedEngine() {
  EngineOptions options;
  options.strategy = "gpu-only";
  options.model = FixturePath("families/llama2/model.gguf");
  options.dtype = DType::kF32;
  options.cpu_threads = 2;
  options.gpu_kv_cache = SizeInTokens(4096);
  options.max_num_seqs = kNumLiveSlots;
  options.show_progress = false;
  options.cpu_trial = false;
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::vector<Submitted> SubmitSome(Engine& engine, int64_t max_tokens) {
  std::vector<Submitted> submitted;
  for (size_t i = 0; i < kNumLiveRequests; ++i) {
    RequestSpec spec;
    spec.prompt_tokens.assign(5 + i % 40, static_cast<int32_t>(7 + i));
    spec.sampling.temperature = 0.0F;
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.ignore_eos = true;
    submitted.push_back(SubmitTo(engine, std::move(spec)));
  }
  return submitted;
}

// Null if it does not come.
std::shared_ptr<const LiveView> AwaitView(const Engine& engine,
                                          const std::function<bool(const LiveView&)>& wanted) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    auto view = engine.Live();
    if (view && wanted(*view)) return view;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return nullptr;
}

TEST(LiveTest, NothingIsKeptWhileNobodyWatches) {
  const auto engine = MakeWatchedEngine();
  ASSERT_NE(engine, nullptr);
  const auto submitted = SubmitSome(*engine, 20);
  while (engine->Stats().iterations < 20) {
    EXPECT_EQ(engine->Live(), nullptr);
    EXPECT_TRUE(engine->LastIteration().empty());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const Submitted& request : submitted) request.output->Wait();
  // Whoever comes finds nothing of the time before.
  engine->Watch(true);
  EXPECT_EQ(engine->Live(), nullptr);
  EXPECT_TRUE(engine->LastIteration().empty());
}

TEST(LiveTest, RowsAddUpWithTheGauges) {
  const auto engine = MakeWatchedEngine();
  ASSERT_NE(engine, nullptr);
  engine->Watch(true);
  const auto submitted = SubmitSome(*engine, 400);
  const auto view = AwaitView(*engine, [](const LiveView& seen) {
    return seen.stats.num_running == static_cast<int64_t>(kNumLiveSlots) && seen.stats.num_waiting > 0 &&
           seen.requests[0].state == LiveRequest::State::kDecode;
  });
  ASSERT_NE(view, nullptr);
  ASSERT_EQ(view->requests.size(), kNumLiveSlots + static_cast<size_t>(view->stats.num_waiting));
  EXPECT_EQ(view->num_left_off, 0);
  int64_t blocks = 0;
  for (size_t i = 0; i < view->requests.size(); ++i) {
    const LiveRequest& row = view->requests[i];
    const bool waits = i >= kNumLiveSlots;
    EXPECT_EQ(row.prompt_tokens, static_cast<int64_t>(5 + (row.id - submitted[0].id) % 40));
    EXPECT_EQ(row.max_tokens, 400);
    EXPECT_EQ(row.state == LiveRequest::State::kWaiting, waits);
    EXPECT_EQ(row.tier.has_value(), !waits);
    EXPECT_EQ(row.blocks == 0, waits);
    EXPECT_LE(row.computed_tokens, row.prompt_tokens + row.generated_tokens);
    EXPECT_LE(row.computed_tokens, row.blocks * view->stats.block_size);
    if (i > 0) {
      EXPECT_GT(row.id, view->requests[i - 1].id);
    }
    blocks += row.blocks;
  }
  EXPECT_EQ(blocks, view->stats.gpu_blocks_total - view->stats.gpu_blocks_free);
  std::set<std::string> lanes;
  for (const TimelineSpan& span : engine->LastIteration()) {
    lanes.insert(std::string(span.lane));
    EXPECT_LE(span.begin_ns, span.end_ns);
  }
  EXPECT_TRUE(lanes.contains("gpu"));
  EXPECT_TRUE(lanes.contains("engine"));

  for (const Submitted& request : submitted) engine->Cancel(request.id);
  for (const Submitted& request : submitted) request.output->Wait();
  const auto idle = AwaitView(*engine, [](const LiveView& seen) { return seen.requests.empty(); });
  ASSERT_NE(idle, nullptr);
  EXPECT_EQ(idle->stats.num_running, 0);
  EXPECT_EQ(idle->stats.gpu_blocks_free, idle->stats.gpu_blocks_total);
  engine->Watch(false);
  EXPECT_EQ(engine->Live(), nullptr);
  EXPECT_TRUE(engine->LastIteration().empty());
}

TEST(Live, EachShardHasItsLanes) {
  EngineOptions options;
  options.dummy = "tiny";
  options.tensor_parallel_size = 2;
  options.strategy = "gpu-only";
  options.dtype = DType::kF32;
  options.cpu_threads = 2;
  options.gpu_kv_cache = SizeInTokens(1024);
  options.show_progress = false;
  options.cpu_trial = false;
  const auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  (*engine)->Watch(true);
  RequestSpec spec;
  spec.prompt_tokens = {1, 2, 3};
  spec.sampling.temperature = 0;
  spec.sampling.max_tokens = 5;
  spec.sampling.ignore_eos = true;
  EXPECT_EQ(SubmitTo(**engine, std::move(spec)).output->Wait(), FinishReason::kLength);
  (*engine)->Drain();
  std::map<std::string, std::vector<TimelineSpan>> lanes;
  for (const TimelineSpan& span : (*engine)->LastIteration()) lanes[span.lane].push_back(span);
  EXPECT_FALSE(lanes.contains("gpu"));
  // Behind the embedding, two a layer, and the logits: the same on both, each named by what it follows.
  for (const char* lane : {"gpu 0", "gpu 1"}) {
    std::vector<std::string> names;
    for (const TimelineSpan& span : lanes[lane]) names.push_back(span.name);
    EXPECT_THAT(names, ElementsAre("embedding", "sum over the shards", "embedding", "pre-projection 0",
                                   "gpu attention 0", "post-projection 0", "sum over the shards 0",
                                   "post-projection 0", "sum over the shards 0", "post-projection 0",
                                   "pre-projection 1", "gpu attention 1", "post-projection 1",
                                   "sum over the shards 1", "post-projection 1", "sum over the shards 1",
                                   "post-projection 1", "logits and sampling", "logits gathered",
                                   "logits and sampling", "end"))
        << lane;
  }
  // Nobody has left a sum before the other one was there.
  const auto& first = lanes["gpu 0"];
  const auto& second = lanes["gpu 1"];
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i].name.find("sum") == std::string::npos) continue;
    EXPECT_GE(first[i].end_ns, second[i].begin_ns) << i;
    EXPECT_GE(second[i].end_ns, first[i].begin_ns) << i;
  }
}

}  // namespace
}  // namespace tandem
