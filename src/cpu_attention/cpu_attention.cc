#include "cpu_attention/cpu_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/spin.h"
#include "base/topology.h"
#include "cpu_attention/worker_cores.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxParts = 8;
// How often the sentinel looks at flags: a small part of a layer; after a while without news, a small share
// of a core.
constexpr auto kSentinelNap = std::chrono::microseconds(20);
constexpr auto kLongSentinelNap = std::chrono::microseconds(200);
constexpr int kNapsBeforeLongNaps = 200;

}  // namespace

struct CpuAttention::Task {
  AttentionTask task;
  bool finished = false;  // by mutex_
  int users = 0;          // workers that hold a pointer; by mutex_
  int64_t num_parts = 0;
  std::array<int64_t, kMaxParts> num_items = {};
  struct alignas(64) Cursor {
    std::atomic<int64_t> next{0};
  };
  std::array<Cursor, kMaxParts> cursors;
  alignas(64) std::atomic<int64_t> num_left{0};

  bool HasItems() const {
    for (int64_t part = 0; part < num_parts; ++part) {
      const auto p = static_cast<size_t>(part);
      if (cursors[p].next.load(std::memory_order_relaxed) < num_items[p]) return true;
    }
    return false;
  }
};

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
  const std::vector<WorkerCore> cores = ChooseWorkerCores(num_threads);
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
      for (Task* task : queue.tasks) {
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
  return fmt::format("{} {}, {}", num_threads(), num_threads() == 1 ? "thread" : "threads",
                     CpuIsaName(options_.isa));
}

CpuAttentionStats CpuAttention::stats() const {
  const std::lock_guard lock(mutex_);
  CpuAttentionStats stats = stats_;
  int64_t busy_ns = 0;
  for (const auto& worker : workers_) busy_ns += worker->busy_ns.load(std::memory_order_relaxed);
  stats.busy_us = busy_ns / 1000;
  return stats;
}

CpuAttention::Task* CpuAttention::NewTask() {
  if (spare_.empty()) return all_tasks_.emplace_back(std::make_unique<Task>()).get();
  Task* task = spare_.back();
  spare_.pop_back();
  return task;
}

void CpuAttention::Submit(const AttentionTask& submitted) {
  DecodePlan& plan = *submitted.plan;
  TANDEM_CHECK(plan.num_parts() <= kMaxParts, "cache of {} parts", plan.num_parts());
  plan.CheckLayer(submitted.layer);
  {
    const std::lock_guard lock(mutex_);
    Task* task = NewTask();
    task->task = submitted;
    task->finished = false;
    task->users = 0;
    task->num_parts = plan.num_parts();
    int64_t num_items = 0;
    for (int64_t part = 0; part < task->num_parts; ++part) {
      const auto p = static_cast<size_t>(part);
      task->num_items[p] = plan.num_items(part);
      task->cursors[p].next.store(0, std::memory_order_relaxed);
      num_items += task->num_items[p];
    }
    task->num_left.store(num_items, std::memory_order_relaxed);
    ++num_unfinished_;
    const Flag* ready = submitted.ready;
    const auto queue = std::find_if(unarmed_.begin(), unarmed_.end(),
                                    [&](const FlagQueue& other) { return other.flag == ready; });
    const bool waits = ready != nullptr && (queue != unarmed_.end() || ready->aborted() ||
                                            ready->value() < submitted.ready_value);
    if (!waits && num_items > 0) {
      plan.BeginLayer();
      armed_.push_back(task);
    } else {
      if (queue != unarmed_.end()) {
        queue->tasks.push_back(task);
      } else {
        unarmed_.push_back({ready, {task}});
      }
      num_unarmed_.fetch_add(1, std::memory_order_release);
    }
  }
  // Also if it waits: someone must start to watch its flag.
  AnnounceWork();
}

void CpuAttention::AnnounceWork() {
  work_epoch_.fetch_add(1, std::memory_order_release);
  work_epoch_.notify_all();
}

bool CpuAttention::PollFlags() {
  if (num_unarmed_.load(std::memory_order_acquire) == 0) return false;
  bool armed_any = false;
  std::vector<Task*> skipped;
  {
    const std::lock_guard lock(mutex_);
    for (size_t q = 0; q < unarmed_.size();) {
      FlagQueue& queue = unarmed_[q];
      while (!queue.tasks.empty()) {
        Task* task = queue.tasks.front();
        const bool aborted = queue.flag != nullptr && queue.flag->aborted();
        if (!aborted && queue.flag != nullptr && queue.flag->value() < task->task.ready_value) break;
        queue.tasks.pop_front();
        num_unarmed_.fetch_sub(1, std::memory_order_relaxed);
        if (aborted || task->num_left.load(std::memory_order_relaxed) == 0) {
          skipped.push_back(task);
          continue;
        }
        task->task.plan->BeginLayer();
        armed_.push_back(task);
        armed_any = true;
      }
      if (queue.tasks.empty()) {
        unarmed_.erase(unarmed_.begin() + static_cast<std::ptrdiff_t>(q));
      } else {
        ++q;
      }
    }
  }
  for (Task* task : skipped) Complete(task);
  if (armed_any) AnnounceWork();
  return armed_any;
}

CpuAttention::Task* CpuAttention::EnterTask() {
  const std::lock_guard lock(mutex_);
  while (!armed_.empty() && !armed_.front()->HasItems()) armed_.pop_front();
  if (armed_.empty()) return nullptr;
  ++armed_.front()->users;
  return armed_.front();
}

void CpuAttention::LeaveTask(Task* task) {
  const std::lock_guard lock(mutex_);
  // It has no items left, but may still be in the queue, where a new use of it must not be found.
  if (!armed_.empty() && armed_.front() == task) armed_.pop_front();
  if (--task->users == 0 && task->finished) spare_.push_back(task);
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
    task->task.plan->RunItem(kernels_, task->task.layer, part, item, fetched);
    if (task->num_left.fetch_sub(1, std::memory_order_acq_rel) == 1) Complete(task);
    item = next >= 0 ? next : task->cursors[p].next.fetch_add(1, std::memory_order_relaxed);
  }
}

void CpuAttention::RunItems(Task* task, Worker* worker) {
  const auto start = Clock::now();
  // The memory of this worker's own node first, then whatever is left.
  for (int64_t i = 0; i < task->num_parts; ++i)
    RunPart(task, (worker->core.node_index + i) % task->num_parts);
  const auto busy = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
  worker->busy_ns.fetch_add(busy.count(), std::memory_order_relaxed);
}

// After the last item: nothing of the plan or the layer is touched from here on.
void CpuAttention::Complete(Task* task) {
  const AttentionTask done = task->task;
  const bool aborted = done.ready != nullptr && done.ready->aborted();
  const int64_t kv_bytes = aborted ? 0 : done.plan->kv_bytes();
  if (done.done != nullptr) {
    if (aborted) {
      done.done->Abort();
    } else {
      done.done->Set(done.done_value);
    }
  }
  const std::lock_guard lock(mutex_);
  task->finished = true;
  ++stats_.num_tasks;
  stats_.kv_bytes += kv_bytes;
  if (task->users == 0) spare_.push_back(task);
  if (--num_unfinished_ == 0) idle_.notify_all();
}

void CpuAttention::WaitIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return num_unfinished_ == 0; });
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
  const auto deadline = Clock::now() + std::chrono::microseconds(options_.spin_us);
  for (int i = 0; !has_news(); ++i) {
    if (num_unarmed_.load(std::memory_order_relaxed) > 0 && !polling_.load(std::memory_order_relaxed) &&
        !polling_.exchange(true, std::memory_order_acquire)) {
      PollFlags();
      polling_.store(false, std::memory_order_release);
    }
    if ((i & 15) == 15 && Clock::now() > deadline) break;
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
