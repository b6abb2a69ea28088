#include "engine/inbox.h"

#include <chrono>
#include <utility>

namespace tandem {

Result<RequestId> Inbox::Submit(std::unique_ptr<Request> request) {
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_) return MakeError(ErrorCode::kUnavailable, "the engine is shutting down");
    const int64_t num_queued = stats_.num_waiting + static_cast<int64_t>(news_.arrived.size());
    if (num_queued >= max_num_queued_reqs_) {
      ++stats_.rejected_requests;
      return MakeError(ErrorCode::kResourceExhausted, "the queue is full: {} requests are waiting",
                       num_queued);
    }
    id = next_id_++;
    request->id = id;
    request->seed = request->sampling.seed ? *request->sampling.seed : seeds_();
    ++num_in_flight_;
    news_.arrived.push_back(std::move(request));
  }
  changed_.notify_one();
  return id;
}

void Inbox::Cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    news_.cancelled.push_back(id);
  }
  changed_.notify_one();
}

void Inbox::ForgetPrefixes() {
  {
    const std::lock_guard lock(mutex_);
    news_.forget_prefixes = true;
  }
  changed_.notify_one();
}

void Inbox::Drain() {
  std::unique_lock lock(mutex_);
  draining_ = true;
  idle_.wait(lock, [&] { return num_in_flight_ == 0; });
}

void Inbox::CancelAll() {
  std::unique_lock lock(mutex_);
  // A request that comes while this waits, or right after, is none of those.
  news_.cancel_below = next_id_;
  changed_.notify_one();
  idle_.wait(lock, [&] { return num_in_flight_ == 0; });
}

void Inbox::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    news_.cancel_below = next_id_;
  }
  changed_.notify_one();
}

EngineStats Inbox::Stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.num_waiting += static_cast<int64_t>(news_.arrived.size());
  return stats;
}

bool Inbox::Take(bool has_work, bool looks, News* news) {
  *news = {};
  std::unique_lock lock(mutex_);
  const auto has_news = [&] {
    return has_work || !news_.arrived.empty() || news_.forget_prefixes || news_.cancels() || stopping_;
  };
  if (looks) {
    constexpr std::chrono::milliseconds kLook{20};
    changed_.wait_for(lock, kLook, has_news);
  } else {
    changed_.wait(lock, has_news);
  }
  std::swap(*news, news_);
  // Visible as waiting, and counted against the queue's limit, until the next snapshot.
  stats_.num_waiting += static_cast<int64_t>(news->arrived.size());
  return has_work || !stopping_ || !news->arrived.empty();
}

void Inbox::PublishLocked(const EngineStats& stats) {
  const uint64_t rejected = stats_.rejected_requests;
  stats_ = stats;
  stats_.rejected_requests = rejected;
}

void Inbox::Publish(const EngineStats& stats) {
  const std::lock_guard lock(mutex_);
  PublishLocked(stats);
}

void Inbox::EndRequest(const std::function<void(EngineStats*)>& gauges,
                       const std::function<const EngineStats&()>& last) {
  const std::lock_guard lock(mutex_);
  if (--num_in_flight_ > 0) {
    gauges(&stats_);
    return;
  }
  PublishLocked(last());
  idle_.notify_all();
}

}  // namespace tandem
