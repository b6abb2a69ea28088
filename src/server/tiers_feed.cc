#include "server/tiers_feed.h"

#include <chrono>
#include <utility>

#include "base/timeline.h"
#include "engine/engine.h"
#include "server/api_error.h"
#include "server/api_state.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/sse.h"
#include "server/tiers_event.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kTickInterval{250};
// A timeline is larger than the rest, and read more slowly.
constexpr uint64_t kTicksPerTimeline = 4;

}  // namespace

void TiersFeed::Begin(Engine* engine, ServerMetrics* metrics, HttpServer* http,
                      const std::atomic<bool>* draining) {
  engine_ = engine;
  metrics_ = metrics;
  http_ = http;
  draining_ = draining;
}

void TiersFeed::Subscribe(std::shared_ptr<HttpExchange> exchange) {
  if (subscribers_.size() >= kMaxSubscribers) {
    return exchange->Respond(ErrorResponse(
        Unavailable("As many clients watch the tiers as the server serves.", "too_many_watchers")));
  }
  exchange->StartStream({.content_type = std::string(kSseContentType),
                         .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                         .body = {}});
  if (!exchange->connected()) return;
  if (subscribers_.empty()) {
    latencies_ = std::make_unique<LatencyWindow>();
    metrics_->Watch(latencies_.get());
    engine_->Watch(true);
  }
  const uint64_t id = next_id_++;
  exchange->SetDisconnectCallback([this, id] { Remove(id); });
  subscribers_.push_back({id, std::move(exchange)});
  SendAll();
  if (!std::exchange(ticking_, true)) http_->PostAfter(kTickInterval, [this] { Tick(); });
}

void TiersFeed::Tick() {
  if (*draining_) EndAll();
  ticking_ = !subscribers_.empty();
  if (!ticking_) return;
  ++num_ticks_;
  SendAll();
  http_->PostAfter(kTickInterval, [this] { Tick(); });
}

void TiersFeed::SendAll() {
  const auto view = engine_->Live();
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::string events = SseEvent("tiers", TiersJson({.time_s = now.count(),
                                                    .strategy = engine_->options().strategy,
                                                    .view = view.get(),
                                                    .stats = view ? EngineStats{} : engine_->Stats(),
                                                    .latencies = latencies_.get()}));
  if (num_ticks_ % kTicksPerTimeline == 0) {
    const std::vector<TimelineSpan> spans = engine_->LastIteration();
    if (!spans.empty()) events += SseEvent("timeline", TimelineJson(spans));
  }
  // Sending may find a client gone, which takes it out.
  const std::vector<Subscriber> all = subscribers_;
  for (const Subscriber& subscriber : all) {
    // Whoever reads slowly gets fewer events, not older ones.
    if (subscriber.exchange->unsent_bytes() == 0) subscriber.exchange->Send(events);
  }
}

void TiersFeed::Remove(uint64_t id) {
  std::erase_if(subscribers_, [id](const Subscriber& subscriber) { return subscriber.id == id; });
  if (!subscribers_.empty() || !latencies_) return;
  engine_->Watch(false);
  metrics_->Watch(nullptr);
  latencies_.reset();
}

void TiersFeed::EndAll() {
  const std::vector<Subscriber> all = subscribers_;
  for (const Subscriber& subscriber : all) {
    Remove(subscriber.id);
    subscriber.exchange->EndStream();
  }
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): every endpoint has the signature of api_state.h
void StreamTiers(ApiState& state, HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  if (request.method == "HEAD") {
    return exchange->Respond({.content_type = std::string(kSseContentType), .headers = {}, .body = {}});
  }
  state.tiers.Subscribe(std::move(exchange));
}

}  // namespace tandem
