#include "kv_events/kv_event_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <chrono>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/topology.h"

namespace tandem {
namespace {

using SequenceBytes = std::array<uint8_t, 8>;
using Frame = std::span<const uint8_t>;

SequenceBytes BytesOf(uint64_t sequence_number) {
  SequenceBytes bytes = {};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(sequence_number >> (8 * (bytes.size() - 1 - i)));
  return bytes;
}

uint64_t SequenceNumberOf(Frame bytes) {
  uint64_t number = 0;
  for (const uint8_t byte : bytes) number = number << 8 | byte;
  return number;
}

Frame FrameOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

bool IsBound(const std::string& endpoint) {
  return endpoint.find('*') != std::string::npos || endpoint.find("::") != std::string::npos ||
         endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://");
}

Error Named(Error error, const char* key) {
  error.message = fmt::format("--kv-events-config, {}: {}", key, error.message);
  error.param = "kv-events-config";
  return error;
}

Result<std::unique_ptr<ZmqSocket>> SubscribersOf(const KvEventsConfig& config) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ZmqSocket> socket, ZmqSocket::Create(ZMQ_PUB));
  socket->Set(ZMQ_SNDHWM, static_cast<int>(config.hwm));
  const Status reached =
      IsBound(config.endpoint) ? socket->Bind(config.endpoint) : socket->Connect(config.endpoint);
  if (!reached.ok()) return Named(reached.error(), "endpoint");
  return socket;
}

// Null where nothing is sent again.
Result<std::unique_ptr<ZmqSocket>> ReplayOf(const KvEventsConfig& config) {
  if (!config.replay_endpoint) return std::unique_ptr<ZmqSocket>();
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ZmqSocket> socket, ZmqSocket::Create(ZMQ_ROUTER));
  // Room for one whole answer and its end.
  socket->Set(ZMQ_SNDHWM, static_cast<int>(config.buffer_steps + 1));
  constexpr int64_t kMaxRequestBytes = 1024;
  socket->Set(ZMQ_MAXMSGSIZE, kMaxRequestBytes);
  const Status bound = socket->Bind(*config.replay_endpoint);
  if (!bound.ok()) return Named(bound.error(), "replay_endpoint");
  return socket;
}

}  // namespace

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::Start(const KvEventsConfig& config) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ZmqSocket> subscribers, SubscribersOf(config));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ZmqSocket> replay, ReplayOf(config));
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) return MakeError(ErrorCode::kResourceExhausted, "no file descriptor to publish KV events");
  return std::unique_ptr<KvEventPublisher>(
      new KvEventPublisher(config, std::move(subscribers), std::move(replay), wake_fd));
}

KvEventPublisher::KvEventPublisher(const KvEventsConfig& config, std::unique_ptr<ZmqSocket> subscribers,
                                   std::unique_ptr<ZmqSocket> replay, int wake_fd)
    : config_(config),
      subscribers_(std::move(subscribers)),
      replay_(std::move(replay)),
      endpoint_(subscribers_->address()),
      replay_endpoint_(replay_ ? replay_->address() : ""),
      wake_fd_(wake_fd),
      queue_(config.max_queue_size) {
  thread_ = std::thread([this] { Run(); });
}

KvEventPublisher::~KvEventPublisher() {
  stopping_ = true;
  Wake();
  thread_.join();
  close(wake_fd_);
  if (const KvEventCounts all = counts(); all.dropped_events > 0)
    LogWarn("{} of {} KV events were dropped: too many waited to be sent", all.dropped_events, all.events);
}

void KvEventPublisher::Wake() {
  const uint64_t one = 1;
  // It fails only where the thread has been woken 2^64 - 2 times already.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void KvEventPublisher::Publish(KvEvents events) {
  TANDEM_CHECK(!events.empty(), "a batch of no events");
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  queue_.Push(now.count(), std::move(events));
  Wake();
}

void KvEventPublisher::Run() {
  SetThreadName("kv events");
  // So many, and whoever asks for older ones waits no longer.
  constexpr int kMaxBatches = 64;
  while (!stopping_ || !queue_.empty()) {
    Await();
    for (int i = 0; i < kMaxBatches; ++i) {
      const std::optional<KvEventBatch> batch = queue_.Take();
      if (!batch) break;
      Send(*batch);
    }
    if (replay_) Replay();
  }
}

void KvEventPublisher::Await() {
  std::array<zmq_pollitem_t, 2> items = {};
  items[0] = {.socket = nullptr, .fd = wake_fd_, .events = ZMQ_POLLIN, .revents = 0};
  if (replay_) items[1] = {.socket = replay_->handle(), .fd = 0, .events = ZMQ_POLLIN, .revents = 0};
  const bool busy = stopping_ || !queue_.empty();
  zmq_poll(items.data(), replay_ ? 2 : 1, busy ? 0 : -1);
  uint64_t num_wakes = 0;
  [[maybe_unused]] const ssize_t num_read = read(wake_fd_, &num_wakes, sizeof(num_wakes));
}

void KvEventPublisher::Send(const KvEventBatch& batch) {
  std::vector<uint8_t> encoded = EncodeKvEvents(batch.unix_seconds, batch.events, config_.encoding);
  const SequenceBytes number = BytesOf(batch.sequence_number);
  subscribers_->Send(std::array<Frame, 3>{FrameOf(config_.topic), number, encoded});
  if (!replay_) return;
  sent_.push_back({batch.sequence_number, std::move(encoded)});
  if (std::ssize(sent_) > config_.buffer_steps) sent_.pop_front();
}

void KvEventPublisher::Replay() {
  for (auto request = replay_->Receive(); !request.empty(); request = replay_->Receive()) {
    // Who asks, an empty frame, from which number on.
    if (request.size() != 3 || !request[1].empty() || request[2].size() != sizeof(uint64_t)) {
      LogDebug("a request for KV events has {} frames, or no sequence number of 8 bytes", request.size());
      continue;
    }
    const uint64_t first = SequenceNumberOf(request[2]);
    for (const Sent& sent : sent_) {
      if (sent.sequence_number < first) continue;
      replay_->Send(std::array<Frame, 4>{request[0], Frame(), BytesOf(sent.sequence_number), sent.batch});
    }
    replay_->Send(std::array<Frame, 4>{request[0], Frame(), BytesOf(~uint64_t{0}), Frame()});
  }
}

}  // namespace tandem
