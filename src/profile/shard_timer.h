// How long work takes that all shards do together, each on its compute stream.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/result.h"
#include "profile/profile_parts.h"
#include "profile/stream_timer.h"

namespace tandem {

// Of a whole model a StreamTimer of its compute stream. One thread; work is called as
// ProfileParts::on_all does. Times are those of the slowest shard, from its own start on.
class ShardTimer {
 public:
  using Work = std::function<void(size_t rank)>;

  // Errors: kResourceExhausted.
  static Result<ShardTimer> Create(const ProfileParts& parts);

  // As StreamTimer::TimeUs: with what it takes to enqueue.
  double TimeUs(const Work& enqueue);
  // As StreamTimer::TimeEnqueuedUs: all shards begin once all of them have enqueued. first: what their
  // streams do before the time begins, which may bring them in step.
  double TimeEnqueuedUs(const Work& enqueue, const Work& first = {});

 private:
  explicit ShardTimer(const ProfileParts& parts) : parts_(parts) {}
  double AwaitUs();

  ProfileParts parts_;
  std::vector<StreamTimer> timers_;  // by rank
};

}  // namespace tandem
