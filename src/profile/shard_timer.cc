#include "profile/shard_timer.h"

#include <algorithm>
#include <utility>

namespace tandem {

Result<ShardTimer> ShardTimer::Create(const ProfileParts& parts) {
  ShardTimer timer(parts);
  for (const ShardParts& shard : ShardsOf(parts)) {
    TANDEM_ASSIGN_OR_RETURN(StreamTimer of_shard, StreamTimer::Create(shard.device, shard.compute));
    timer.timers_.push_back(std::move(of_shard));
  }
  return timer;
}

double ShardTimer::AwaitUs() {
  double slowest_us = 0;
  for (StreamTimer& timer : timers_) slowest_us = std::max(slowest_us, timer.AwaitUs());
  return slowest_us;
}

double ShardTimer::TimeUs(const Work& enqueue) {
  OnAllShards(parts_, [&](size_t rank) {
    timers_[rank].Begin();
    enqueue(rank);
    timers_[rank].End();
  });
  return AwaitUs();
}

double ShardTimer::TimeEnqueuedUs(const Work& enqueue, const Work& first) {
  OnAllShards(parts_, [&](size_t rank) {
    timers_[rank].Hold();
    if (first) first(rank);
    timers_[rank].Begin();
    enqueue(rank);
    timers_[rank].End();
  });
  for (StreamTimer& timer : timers_) timer.Release();
  return AwaitUs();
}

}  // namespace tandem
