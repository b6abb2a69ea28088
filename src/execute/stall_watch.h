// When CPU attention counts as stalled: it owes output, and ends no task for the whole timeout.
//
// Time is counted in looks, not by the clock: if the whole process was stopped for a while, nobody had time
// to answer. So no look counts for more than longest_look.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace tandem {

// Engine thread only.
class StallWatch {
 public:
  struct Look {
    int64_t num_tasks = 0;     // that CPU attention has ended since its creation
    bool owes_output = false;  // attention that waits for its Q/K/V owes nothing
  };

  explicit StallWatch(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  std::chrono::microseconds longest_look() const;

  // passed: since the look before. Whether the timeout has passed without progress.
  bool Stalled(std::chrono::nanoseconds passed, const Look& look);
  // What was owed is not waited for any more.
  void Forgive() { silent_ = std::chrono::nanoseconds(0); }

  // Waits until ended says so: it is called again and again with how long it may take, at first `pace`, then
  // twice as long each time up to `slowest`; false: not ended yet. Returns false if CPU attention stalls
  // before. Independent of what Stalled was told.
  struct Pace {
    std::chrono::microseconds first;
    std::chrono::microseconds slowest;
  };
  bool Await(const Pace& pace, const std::function<bool(std::chrono::microseconds)>& ended,
             const std::function<Look()>& look) const;

 private:
  std::chrono::milliseconds timeout_;
  std::chrono::nanoseconds silent_{0};
  int64_t num_tasks_ = -1;  // at the last look
};

}  // namespace tandem
