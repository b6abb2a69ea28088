#include "collective/rank_threads.h"

namespace tandem {

RankThreads::RankThreads(int num_ranks) {
  for (int rank = 1; rank < num_ranks; ++rank) threads_.emplace_back([this, rank] { Serve(rank); });
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::Run(const std::function<void(int rank)>& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    ++num_runs_;
    num_busy_ = static_cast<int>(threads_.size());
  }
  changed_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return num_busy_ == 0; });
}

void RankThreads::Serve(int rank) {
  uint64_t num_served = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || num_runs_ > num_served; });
    if (ends_) return;
    num_served = num_runs_;
    const auto& work = *work_;
    lock.unlock();
    work(rank);
    lock.lock();
    if (--num_busy_ == 0) changed_.notify_all();
  }
}

}  // namespace tandem
