#include "cpu_attention/cpu_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/spin.h"
#include "base/topology.h"
#include "cpu_attention/task_state.h"
#include "cpu_attention/worker_cores.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// How often the sentinel looks at flags: a small part of a layer; after a while without news, a small share
// of a core.
constexpr auto kSentinelNap = std::chrono::microseconds(20);
constexpr auto kLongSentinelNap = std::chrono::microseconds(200);
constexpr int kNapsBeforeLongNaps = 200;
constexpr auto kSpinBeforeYield = std::chrono::microseconds(50);
// Between looks at all flags by a worker that spins; in between it leaves the mutex to the others.
constexpr int64_t kIdlePollNs = 500;

}  // namespace

struct CpuAttention::Worker {
  int index = 0;
  WorkerCore core;
  std::atomic<int64_t> busy_ns{0};
  OnAll* last_on_all = nullptr;
  std::thread thread;
};

struct CpuAttention::OnAll {
  Invoke invoke = nullptr;
  const void* context = nullptr;
  std::atomic<int> num_arrived{0};
  int num_left = 0;  // by mutex_
};

int DefaultCpuAttentionThreads(bool leave_cores) {
  const int cores = MachineTopology().num_physical_cores;
  if (!leave_cores || cores == 1) return cores;
  return cores - std::max(1, cores / 8);
}

CpuAttention::CpuAttention(const CpuAttentionOptions& options)
    : options_(options), kernels_(AttentionKernelsFor(options.isa)) {
  const int num_threads =
      options.num_threads > 0 ? options.num_threads : DefaultCpuAttentionThreads(options.leave_cores);
  const std::vector<WorkerCore> cores =
      ChooseWorkerCores(NumaNodesAt(options.nodes), num_threads, options.num_cores_taken);
  workers_.reserve(static_cast<size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) {
    auto& worker = workers_.emplace_back(std::make_unique<Worker>());
    worker->index = i;
    worker->core = cores[static_cast<size_t>(i)];
  }
  // After all exist: a worker must not see the vector grow.
  for (auto& worker : workers_) worker->thread = std::thread([this, w = worker.get()] { WorkerMain(w); });
}

CpuAttention::~CpuAttention() {
  {
    const std::lock_guard lock(mutex_);
    for (const FlagQueue& queue : unarmed_) {
      for (Task* task = queue.first; task != nullptr; task = task->next_of_flag) {
        if (task->task.ready != nullptr) task->task.ready->Abort();
      }
    }
  }
  PollFlags();
  WaitIdle();
  stopping_.store(true);
  AnnounceWork();
  for (auto& worker : workers_) worker->thread.join();
}

std::string CpuAttention::Description() const {
  std::string description = fmt::format("{} {}, {}", num_threads(), num_threads() == 1 ? "thread" : "threads",
                                        CpuIsaName(options_.isa));
  if (options_.fetch != AttentionFetch{})
    description += fmt::format(", fetches to {}", DescribeFetch(options_.fetch));
  if (options_.most_readers == 1) description += ", no shared reads";
  if (options_.most_readers > 1 && options_.most_readers < kRowsPerGroup)
    description += fmt::format(", reads for {} rows", options_.most_readers);
  return description;
}

CpuAttentionStats CpuAttention::stats() const {
  const std::lock_guard lock(mutex_);
  CpuAttentionStats stats = stats_;
  int64_t busy_ns = 0;
  for (const auto& worker : workers_) busy_ns += worker->busy_ns.load(std::memory_order_relaxed);
  stats.busy_us = busy_ns / 1000;
  stats.task_us = task_ns_ / 1000;
  return stats;
}

void CpuAttention::RunPart(Task* task, int64_t part) {
  const auto p = static_cast<size_t>(part);
  const int64_t num_items = task->num_items[p];
  // One item ahead, so that its first piece is fetched while the one before is computed; not for the last
  // items, which would then wait here while other workers idle.
  const int64_t last_ahead = num_items - 2 * num_threads();
  int64_t item = task->cursors[p].next.fetch_add(1, std::memory_order_relaxed);
  while (item < num_items) {
    const int64_t next =
        item < last_ahead ? task->cursors[p].next.fetch_add(1, std::memory_order_relaxed) : -1;
    // In order, what is claimed next will most likely be the next item, whoever takes it.
    const int64_t fetched = next >= 0 && next < num_items ? next : -1;
    task->task.plan->RunItem(kernels_, options_.fetch, task->task.layer, part, item, fetched);
    if (task->num_left.fetch_sub(1, std::memory_order_acq_rel) == 1) Complete(task);
    item = next >= 0 ? next : task->cursors[p].next.fetch_add(1, std::memory_order_relaxed);
  }
}

void CpuAttention::RunItems(Task* task, Worker* worker) {
  const auto start = Clock::now();
  // The memory of this worker's own node first, then whatever is left.
  for (int64_t i = 0; i < task->num_parts; ++i) RunPart(task, (worker->core.place + i) % task->num_parts);
  const auto busy = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
  worker->busy_ns.fetch_add(busy.count(), std::memory_order_relaxed);
}

void CpuAttention::WaitIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return num_unfinished_ == 0; });
}

bool CpuAttention::idle() const {
  const std::lock_guard lock(mutex_);
  return num_unfinished_ == 0;
}

void CpuAttention::RunOnAll(Invoke invoke, const void* context) {
  OnAll on_all;
  on_all.invoke = invoke;
  on_all.context = context;
  on_all.num_left = num_threads();
  {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return num_unfinished_ == 0 && on_all_ == nullptr; });
    on_all_ = &on_all;
    for (auto& worker : workers_) worker->last_on_all = nullptr;
  }
  AnnounceWork();
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return on_all.num_left == 0; });
  on_all_ = nullptr;
  idle_.notify_all();
}

void CpuAttention::WaitForWork(uint32_t seen_epoch) {
  const auto has_news = [&] { return work_epoch_.load(std::memory_order_acquire) != seen_epoch; };
  const auto start = Clock::now();
  const auto deadline = start + std::chrono::microseconds(options_.spin_us);
  const auto first_yield = start + kSpinBeforeYield;
  for (int i = 0; !has_news(); ++i) {
    PollFlagsSometimes(kIdlePollNs);
    if ((i & 15) == 15) {
      const auto now = Clock::now();
      if (now > deadline) break;
      // A long spin must not keep the thread off the core that would bring the next work.
      if (now > first_yield) std::this_thread::yield();
    }
    CpuRelax();
  }
  // Whoever becomes the sentinel sees every flag in time; the others sleep until it, or Submit, announces
  // work.
  while (!has_news() && num_unarmed_.load(std::memory_order_acquire) > 0 &&
         !sentinel_.exchange(true, std::memory_order_acquire)) {
    for (int naps = 0; !has_news() && num_unarmed_.load(std::memory_order_acquire) > 0 && !PollFlags();
         ++naps) {
      std::this_thread::sleep_for(naps < kNapsBeforeLongNaps ? kSentinelNap : kLongSentinelNap);
    }
    sentinel_.store(false, std::memory_order_release);
  }
  if (!has_news()) work_epoch_.wait(seen_epoch, std::memory_order_acquire);
}

void CpuAttention::WorkerMain(Worker* worker) {
  SetThreadName(fmt::format("cpu-attn-{}", worker->index));
  PrepareWorkerThread(worker->core, options_.pin);
  while (true) {
    // Before looking for work: what comes after is seen by its epoch.
    const uint32_t seen_epoch = work_epoch_.load(std::memory_order_acquire);
    if (Task* task = EnterTask(); task != nullptr) {
      RunItems(task, worker);
      LeaveTask(task);
      continue;
    }
    OnAll* on_all = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (on_all_ != nullptr && worker->last_on_all != on_all_) on_all = worker->last_on_all = on_all_;
    }
    if (on_all != nullptr) {
      // Together: a measurement must not begin with some of the threads.
      on_all->num_arrived.fetch_add(1, std::memory_order_acq_rel);
      while (on_all->num_arrived.load(std::memory_order_acquire) < num_threads()) CpuRelax();
      on_all->invoke(on_all->context, worker->index);
      const std::lock_guard lock(mutex_);
      if (--on_all->num_left == 0) idle_.notify_all();
      continue;
    }
    if (stopping_.load()) return;
    WaitForWork(seen_epoch);
  }
}

}  // namespace tandem
