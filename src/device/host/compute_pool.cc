#include "device/host/compute_pool.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/check.h"
#include "base/spin.h"
#include "base/topology.h"

namespace tandem {
namespace {

// Longer than the gap between two ops of an iteration, far shorter than a scheduler tick.
constexpr auto kSpinTime = std::chrono::microseconds(60);
// Tens of microseconds.
constexpr int kSpinsBeforeSleep = 2000;

}  // namespace

ComputePool::ComputePool(int num_threads, std::string_view name) {
  TANDEM_CHECK(num_threads >= 1, "a pool of {} threads", num_threads);
  workers_.reserve(static_cast<size_t>(num_threads - 1));
  for (int i = 1; i < num_threads; ++i) {
    workers_.emplace_back([this, thread_name = fmt::format("{}-{}", name, i)] { WorkerMain(thread_name); });
  }
}

ComputePool::~ComputePool() {
  stopping_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ComputePool::Run(int64_t num_tasks, Invoke invoke, const void* context) {
  TANDEM_CHECK(num_tasks < static_cast<int64_t>(kClosed), "{} tasks", num_tasks);
  const uint64_t epoch = (claim_.load(std::memory_order_relaxed) >> 32) + 1;
  claim_.store((epoch << 32) | kClosed, std::memory_order_release);
  invoke_.store(invoke, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  num_tasks_.store(num_tasks, std::memory_order_release);
  completed_.store(0, std::memory_order_relaxed);
  claim_.store(epoch << 32, std::memory_order_release);
  wake_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();

  TakeTasks();
  // A worker that still computes is usually about to end; one that lost its core to another program is not,
  // and yielding in a loop would only take turns with it: then sleep.
  int64_t completed = completed_.load(std::memory_order_acquire);
  for (int spins = 0; completed != num_tasks; ++spins) {
    if (spins < kSpinsBeforeSleep) {
      CpuRelax();
    } else {
      completed_.wait(completed, std::memory_order_acquire);
    }
    completed = completed_.load(std::memory_order_acquire);
  }
}

bool ComputePool::HasTask() const {
  const uint64_t next = claim_.load(std::memory_order_acquire) & kClosed;
  return next != kClosed && static_cast<int64_t>(next) < num_tasks_.load(std::memory_order_acquire);
}

void ComputePool::TakeTasks() {
  uint64_t word = claim_.load(std::memory_order_acquire);
  while (true) {
    const uint64_t index = word & kClosed;
    const Invoke invoke = invoke_.load(std::memory_order_acquire);
    const void* context = context_.load(std::memory_order_acquire);
    const int64_t num_tasks = num_tasks_.load(std::memory_order_acquire);
    if (index == kClosed || static_cast<int64_t>(index) >= num_tasks) return;
    if (!claim_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    invoke(context, static_cast<int64_t>(index));
    if (completed_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_tasks) completed_.notify_one();
    word = claim_.load(std::memory_order_acquire);
  }
}

void ComputePool::WorkerMain(const std::string& thread_name) {
  SetThreadName(thread_name);
  while (true) {
    const uint32_t seen = wake_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    TakeTasks();
    const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
    bool found = false;
    for (int i = 0; !found; ++i) {
      found = HasTask() || stopping_.load(std::memory_order_relaxed);
      if ((i & 63) == 63 && std::chrono::steady_clock::now() > deadline) break;
      CpuRelax();
    }
    if (!found) wake_.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace tandem
