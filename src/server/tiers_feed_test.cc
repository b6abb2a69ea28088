// Subscribers of a real engine, on the io thread of a real server.
#include "server/tiers_feed.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/http_server.h"
#include "server/metrics.h"

namespace tandem {
namespace {

// A client as the feed sees it. Io thread only.
class TiersClient final : public HttpExchange {
 public:
  void Respond(HttpResponse response) override { status = response.status; }
  void StartStream(HttpResponse head) override { status = head.status; }
  void Send(std::string_view data) override { received.emplace_back(data); }
  size_t unsent_bytes() const override { return unsent; }
  void EndStream() override { ended = true; }
  void SetDisconnectCallback(std::function<void()> callback) override { leave = std::move(callback); }
  bool connected() const override { return true; }
  void AddLogNumber(std::string /*name*/, int64_t /*value*/) override {}

  int status = 0;
  std::vector<std::string> received;
  size_t unsent = 0;
  bool ended = false;
  std::function<void()> leave;
};

class TiersFeedTest : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.model = std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/families/llama2/model.gguf";
    options.dtype = DType::kF32;
    options.strategy = "gpu-only";
    options.cpu_threads = 1;
    options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 1024};
    options.show_progress = false;
    options.cpu_trial = false;
    auto engine = Engine::Create(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(engine).value();
    metrics_ = std::make_unique<ServerMetrics>(engine_.get(), "test");
    auto http = HttpServer::Listen({.port = 0}, nullptr, nullptr);
    ASSERT_TRUE(http.ok()) << http.error().message;
    http_ = std::move(http).value();
    feed_.Begin(engine_.get(), metrics_.get(), http_.get(), &draining_);
  }

  template <typename Task>
  void OnIoThread(Task task) {
    std::promise<void> done;
    http_->Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  std::shared_ptr<TiersClient> Subscribe() {
    auto client = std::make_shared<TiersClient>();
    OnIoThread([&] { feed_.Subscribe(client); });
    return client;
  }
  size_t NumReceived(const TiersClient& client) {
    size_t count = 0;
    OnIoThread([&] { count = client.received.size(); });
    return count;
  }
  bool AwaitReceived(const TiersClient& client, size_t count) {
    for (int i = 0; i < 2000 && NumReceived(client) < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return NumReceived(client) >= count;
  }
  void Serve(int64_t max_tokens) {
    RequestSpec spec;
    spec.prompt_tokens.assign(20, 7);
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.ignore_eos = true;
    const auto id = engine_->Submit(std::move(spec), [](const RequestOutput&) {});
    EXPECT_TRUE(id.ok());
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ServerMetrics> metrics_;
  std::atomic<bool> draining_{false};
  TiersFeed feed_;
  std::unique_ptr<HttpServer> http_;  // ends first
};

TEST_F(TiersFeedTest, TheEngineIsWatchedWhileThereAreSubscribers) {
  Serve(20);
  EXPECT_EQ(engine_->Live(), nullptr);
  const auto first = Subscribe();
  const auto second = Subscribe();
  EXPECT_EQ(first->status, 200);
  EXPECT_TRUE(AwaitReceived(*first, 3));
  EXPECT_TRUE(AwaitReceived(*second, 3));
  EXPECT_TRUE(first->received[0].starts_with("event: tiers\ndata: {"));
  OnIoThread([&] { first->leave(); });
  Serve(20);
  const size_t count = NumReceived(*first);
  EXPECT_TRUE(AwaitReceived(*second, NumReceived(*second) + 2));
  EXPECT_EQ(NumReceived(*first), count);
  EXPECT_NE(engine_->Live(), nullptr);
  OnIoThread([&] { second->leave(); });
  EXPECT_EQ(engine_->Live(), nullptr);
  Serve(20);
  EXPECT_EQ(engine_->Live(), nullptr);
  EXPECT_TRUE(engine_->LastIteration().empty());
}

TEST_F(TiersFeedTest, WhoDoesNotReadGetsNoMore) {
  const auto slow = Subscribe();
  OnIoThread([&] { slow->unsent = 1; });
  const size_t before = NumReceived(*slow);
  const auto quick = Subscribe();
  EXPECT_TRUE(AwaitReceived(*quick, 4));
  EXPECT_EQ(NumReceived(*slow), before);
  OnIoThread([&] { slow->unsent = 0; });
  EXPECT_TRUE(AwaitReceived(*slow, before + 1));
  OnIoThread([&] {
    slow->leave();
    quick->leave();
  });
}

TEST_F(TiersFeedTest, StreamsEndWhenTheServerDrains) {
  const auto client = Subscribe();
  draining_ = true;
  bool ended = false;
  for (int i = 0; i < 2000 && !ended; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    OnIoThread([&] { ended = client->ended; });
  }
  EXPECT_TRUE(ended);
  OnIoThread([&] { EXPECT_EQ(feed_.num_subscribers(), 0U); });
  EXPECT_EQ(engine_->Live(), nullptr);
}

TEST_F(TiersFeedTest, ThereIsALimit) {
  std::vector<std::shared_ptr<TiersClient>> clients;
  for (size_t i = 0; i < TiersFeed::kMaxSubscribers; ++i) clients.push_back(Subscribe());
  EXPECT_EQ(clients.back()->status, 200);
  EXPECT_EQ(Subscribe()->status, 503);
  OnIoThread([&] { clients.front()->leave(); });
  clients.front() = Subscribe();
  EXPECT_EQ(clients.front()->status, 200);
  OnIoThread([&] {
    for (const auto& client : clients) client->leave();
  });
}

}  // namespace
}  // namespace tandem
