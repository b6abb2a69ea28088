// A fork-join pool for one stream: the calling thread and num_threads - 1 workers share a range of tasks.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tandem {

// ParallelFor is for one thread at a time. Workers spin briefly between calls, then sleep; a call never waits
// for a worker that has not taken a task.
class ComputePool {
 public:
  // num_threads >= 1, the caller included. name: prefix of the workers' thread names.
  ComputePool(int num_threads, std::string_view name);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(i) for every i in [0, num_tasks), each exactly once, in any order and from any thread of the
  // pool; returns when all have finished. Tasks are handed out one at a time, so unequal ones balance.
  template <typename Task>
  void ParallelFor(int64_t num_tasks, const Task& task) {
    if (num_tasks <= 0) return;
    if (num_tasks == 1 || workers_.empty()) {
      for (int64_t i = 0; i < num_tasks; ++i) task(i);
      return;
    }
    Run(
        num_tasks, [](const void* context, int64_t index) { (*static_cast<const Task*>(context))(index); },
        &task);
  }

 private:
  using Invoke = void (*)(const void* context, int64_t index);

  void Run(int64_t num_tasks, Invoke invoke, const void* context);
  void WorkerMain(const std::string& thread_name);
  // Claims and runs tasks until none is left.
  void TakeTasks();
  bool HasTask() const;

  std::vector<std::thread> workers_;

  // The claim word: epoch in the high half, next task in the low half. A closed epoch has kClosed as its next
  // task. The fields below change only while the word is closed, so a claim that succeeds proves that the
  // fields read before it belong to the claimed epoch.
  static constexpr uint64_t kClosed = 0xffffffffU;
  alignas(64) std::atomic<uint64_t> claim_{kClosed};
  std::atomic<Invoke> invoke_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<int64_t> num_tasks_{0};

  alignas(64) std::atomic<int64_t> completed_{0};
  // Advanced by every Run; idle workers sleep on it.
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace tandem
