#include "execute/stall_watch.h"

#include <algorithm>

namespace tandem {

std::chrono::microseconds StallWatch::longest_look() const {
  return std::clamp(timeout_ / 4, std::chrono::milliseconds(1), std::chrono::milliseconds(50));
}

bool StallWatch::Stalled(std::chrono::nanoseconds passed, const Look& look) {
  const bool progress = look.num_tasks != num_tasks_ || !look.owes_output;
  num_tasks_ = look.num_tasks;
  silent_ = progress ? std::chrono::nanoseconds(0)
                     : silent_ + std::min<std::chrono::nanoseconds>(passed, longest_look());
  return silent_ >= timeout_;
}

bool StallWatch::Await(const Pace& pace, const std::function<bool(std::chrono::microseconds)>& ended,
                       const std::function<Look()>& look) const {
  StallWatch watch(timeout_);
  for (std::chrono::microseconds time = pace.first; !ended(time); time = std::min(2 * time, pace.slowest)) {
    if (watch.Stalled(time, look())) return false;
  }
  return true;
}

}  // namespace tandem
