// Publishes events of the KV cache over ZeroMQ, as vLLM does: on a PUB socket messages of three frames
// (topic, sequence number, batch); on a ROUTER socket, to whoever asks with an empty frame and a sequence
// number, those from that number on that are kept (an empty frame, sequence number, batch), then one with the
// number -1 and no batch. Sequence numbers are 8 bytes, the highest first.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "kv_events/kv_event_queue.h"
#include "kv_events/kv_events_config.h"
#include "kv_events/zmq_socket.h"

namespace tandem {

class KvEventPublisher {
 public:
  // Errors: an address that cannot be bound or connected to, with the flag as param.
  static Result<std::unique_ptr<KvEventPublisher>> Start(const KvEventsConfig& config);
  // Hands what waits to ZeroMQ first.
  ~KvEventPublisher();
  KvEventPublisher(const KvEventPublisher&) = delete;
  KvEventPublisher& operator=(const KvEventPublisher&) = delete;

  // Of one iteration, not empty. Any thread, does not block: where too many batches wait these are dropped.
  void Publish(KvEvents events);
  KvEventCounts counts() const { return queue_.counts(); }  // any thread
  // Where subscribers find it.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }  // empty: nothing is sent again

 private:
  struct Sent {
    uint64_t sequence_number = 0;
    std::vector<uint8_t> batch;
  };

  KvEventPublisher(const KvEventsConfig& config, std::unique_ptr<ZmqSocket> subscribers,
                   std::unique_ptr<ZmqSocket> replay, int wake_fd);
  void Wake();
  // The thread's own from here on.
  void Run();
  // Until something is to be published, sent again, or it ends.
  void Await();
  void Send(const KvEventBatch& batch);
  // Answers all that ask.
  void Replay();

  const KvEventsConfig config_;
  const std::unique_ptr<ZmqSocket> subscribers_;
  const std::unique_ptr<ZmqSocket> replay_;  // null: nothing is sent again
  const std::string endpoint_;
  const std::string replay_endpoint_;
  const int wake_fd_;  // an eventfd
  KvEventQueue queue_;
  std::deque<Sent> sent_;  // the last config_.buffer_steps
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tandem
