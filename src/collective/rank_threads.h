// A thread for each shard but the first, which is the caller's: what shards enqueue goes on beside each
// other. A stream that is full holds up whoever enqueues until the others have come as far, so one thread for
// all could wait for itself.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem {

// One thread calls.
class RankThreads {
 public:
  explicit RankThreads(int num_ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // work(rank) for every rank, each always by the same thread. Blocks until all are done.
  void Run(const std::function<void(int rank)>& work);

 private:
  void Serve(int rank);

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int rank)>* work_ = nullptr;
  uint64_t num_runs_ = 0;
  int num_busy_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem
