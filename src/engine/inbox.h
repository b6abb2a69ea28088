// What callers and the engine thread share: requests that have arrived, cancellations, the end, and the
// statistics that were published last.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "request/request.h"

namespace tandem {

class Inbox {
 public:
  // seed: of requests that bring none.
  Inbox(int64_t max_num_queued_reqs, uint64_t seed)
      : max_num_queued_reqs_(max_num_queued_reqs), seeds_(seed) {}

  // Any thread.

  // Gives the request its id, and a seed if it has none of its own. Errors: kUnavailable (draining),
  // kResourceExhausted (the queue is full).
  Result<RequestId> Submit(std::unique_ptr<Request> request);
  void Cancel(RequestId id);
  // No new requests; blocks until none is in flight.
  void Drain();
  // For requests that are submitted from now on nothing is cached.
  void ForgetPrefixes();
  // Cancels all that have been submitted so far, and blocks until none is in flight.
  void CancelAll();
  // No new requests, all are cancelled, Take says false once there are none.
  void Stop();
  EngineStats Stats() const;

  // Engine thread.

  struct News {
    std::vector<std::unique_ptr<Request>> arrived;
    std::vector<RequestId> cancelled;
    RequestId cancel_below = 0;  // requests with smaller ids are cancelled, those of `arrived` too
    bool forget_prefixes = false;
    bool cancels() const { return !cancelled.empty() || cancel_below > 0; }
  };
  // Waits for news if there is no other work; not long if something else is to be looked at (looks).
  // False once it is time to stop. *news: what it had is replaced.
  bool Take(bool has_work, bool looks, News* news);
  void Publish(const EngineStats& stats);
  // A request has ended, its blocks are free. gauges: brings those of the published statistics up to date.
  // last: everything, if it was the last one in flight, so that whoever waits for an idle engine finds it all
  // counted.
  void EndRequest(const std::function<void(EngineStats*)>& gauges,
                  const std::function<const EngineStats&()>& last);

 private:
  void PublishLocked(const EngineStats& stats);

  const int64_t max_num_queued_reqs_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  News news_;
  bool draining_ = false;
  bool stopping_ = false;
  int64_t num_in_flight_ = 0;
  RequestId next_id_ = 1;
  std::mt19937_64 seeds_;
  EngineStats stats_;
};

}  // namespace tandem
