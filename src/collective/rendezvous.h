// Where the threads of all shards meet. The wait is bounded: whoever does not come ends it for all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tandem {

class Rendezvous {
 public:
  // on_late: called by a thread that has waited for timeout, with the lowest rank that is not there; it is to
  // Abort. Time is counted in looks, not by the clock: if the whole process was stopped, nobody had time to
  // come.
  Rendezvous(int size, std::chrono::milliseconds timeout, std::function<void(int rank)> on_late);

  // Blocks until all ranks have called as often as this one has. False after an Abort: nobody may rely on the
  // others then. For one thread a rank.
  bool Arrive(int rank);
  // Ends all waits, those to come too.
  void Abort();
  bool aborted() const { return aborted_.load(); }

 private:
  bool AllHere(uint64_t number) const;
  int FirstMissing(uint64_t number) const;

  struct alignas(64) Arrivals {
    std::atomic<uint64_t> number{0};
  };

  const std::chrono::milliseconds timeout_;
  const std::function<void(int rank)> on_late_;
  std::vector<Arrivals> arrivals_;  // by rank
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace tandem
