// Where the threads of ranks wait for each other before they enqueue.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "collective/cuda/peer_exchange.h"

namespace tandem {

// Ranks enqueue what exchanges once all of them are about to. What a rank does on the host between two
// exchanges may wait for all that runs on all GPUs: memory that comes or goes, code that is loaded. Nobody's
// kernel waits then for what this rank has not enqueued yet.
class Meeting {
 public:
  // control: of rank 0, for who is late.
  Meeting(PeerControl* control, int size, std::chrono::milliseconds timeout)
      : control_(control), timeout_(timeout), num_arrived_(static_cast<size_t>(size)) {}

  // The calls of a rank follow each other. Returns too when all exchange has ended.
  void Await(int rank);

 private:
  PeerControl* const control_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::atomic<uint64_t>> num_arrived_;  // by rank
};

}  // namespace tandem
