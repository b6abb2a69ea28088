// GET /tiers: what the engine is at, a few times a second, to everyone who watches.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/http_message.h"
#include "server/latency_window.h"

namespace tandem {

class Engine;
class HttpServer;
class ServerMetrics;

// Io thread only, but for Begin. The engine is watched exactly while there are subscribers.
class TiersFeed {
 public:
  // Before the first Subscribe. All outlive the feed. draining: ends all streams.
  void Begin(Engine* engine, ServerMetrics* metrics, HttpServer* http, const std::atomic<bool>* draining);

  // Answers with a stream that ends when the client leaves, or when the server drains. Beyond kMaxSubscribers
  // the answer is an error.
  void Subscribe(std::shared_ptr<HttpExchange> exchange);
  size_t num_subscribers() const { return subscribers_.size(); }

  static constexpr size_t kMaxSubscribers = 64;

 private:
  void Tick();
  void SendAll();
  void Remove(uint64_t id);
  void EndAll();

  struct Subscriber {
    uint64_t id = 0;
    std::shared_ptr<HttpExchange> exchange;
  };
  Engine* engine_ = nullptr;
  ServerMetrics* metrics_ = nullptr;
  HttpServer* http_ = nullptr;
  const std::atomic<bool>* draining_ = nullptr;
  std::vector<Subscriber> subscribers_;
  std::unique_ptr<LatencyWindow> latencies_;  // while there are subscribers
  uint64_t next_id_ = 1;
  bool ticking_ = false;
  uint64_t num_ticks_ = 0;
};

}  // namespace tandem
