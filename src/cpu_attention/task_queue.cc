// The tasks of CpuAttention on their way from submission to done: those that wait for flags, those that are
// armed.
#include <algorithm>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/spin.h"
#include "cpu_attention/cpu_attention.h"
#include "cpu_attention/task_state.h"

namespace tandem {
namespace {

// Between looks at all flags by workers that go from task to task.
constexpr int64_t kBusyPollNs = 3000;
constexpr int kSpinsBeforeBlocking = 200;

}  // namespace

std::unique_lock<std::mutex> CpuAttention::SpinLock() const {
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int i = 0; i < kSpinsBeforeBlocking && !lock.owns_lock(); ++i) {
    CpuRelax();
    // NOLINTNEXTLINE(bugprone-unused-return-value): asked for above
    lock.try_lock();
  }
  if (!lock.owns_lock()) lock.lock();
  return lock;
}

void CpuAttention::WatchProgress(const std::atomic<int64_t>* progress) {
  const std::lock_guard lock(mutex_);
  progress_ = progress;
  pace_.ForgetPasses();
}

CpuAttention::Task* CpuAttention::NewTask() {
  if (spare_.empty()) {
    Task* task = all_tasks_.emplace_back(std::make_unique<Task>()).get();
    task->slot = static_cast<int32_t>(all_tasks_.size()) - 1;
    return task;
  }
  Task* task = spare_.back();
  spare_.pop_back();
  return task;
}

void CpuAttention::Arm(Task* task) {
  const AttentionTask& submitted = task->task;
  submitted.plan->BeginLayer();
  task->armed_ns = SteadyNowNs();
  task->armed_place = static_cast<int32_t>(armed_.size());
  armed_.push_back({.number = num_armed_++,
                    .wanted_at = submitted.wanted_at,
                    .period = submitted.period,
                    .kv_bytes = submitted.plan->kv_bytes(),
                    .slot = task->slot});
}

void CpuAttention::Disarm(Task* task) {
  if (task->armed_place == -1) return;
  ArmedTask& place = armed_[static_cast<size_t>(task->armed_place)];
  place = armed_.back();
  all_tasks_[static_cast<size_t>(place.slot)]->armed_place = task->armed_place;
  task->armed_place = -1;
  armed_.pop_back();
}

void CpuAttention::Submit(const AttentionTask& submitted) {
  DecodePlan& plan = *submitted.plan;
  TANDEM_CHECK(plan.num_parts() <= Task::kMaxParts, "cache of {} parts", plan.num_parts());
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
      Arm(task);
    } else {
      task->next_of_flag = nullptr;
      if (queue != unarmed_.end()) {
        queue->last = queue->last->next_of_flag = task;
      } else {
        unarmed_.push_back({ready, task, task});
      }
      num_unarmed_.fetch_add(1, std::memory_order_release);
    }
  }
  // Also if it waits: someone must start to watch its flag.
  AnnounceWork();
}

void CpuAttention::Hurry(const Flag* ready) {
  const std::lock_guard lock(mutex_);
  for (ArmedTask& armed : armed_) {
    if (all_tasks_[static_cast<size_t>(armed.slot)]->task.ready == ready) armed.wanted_at = -1;
  }
  for (const FlagQueue& queue : unarmed_) {
    if (queue.flag != ready) continue;
    for (Task* task = queue.first; task != nullptr; task = task->next_of_flag) task->task.wanted_at = -1;
  }
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
    const auto lock = SpinLock();
    for (size_t q = 0; q < unarmed_.size();) {
      FlagQueue& queue = unarmed_[q];
      while (queue.first != nullptr) {
        Task* task = queue.first;
        const bool aborted = queue.flag != nullptr && queue.flag->aborted();
        if (!aborted && queue.flag != nullptr && queue.flag->value() < task->task.ready_value) break;
        queue.first = task->next_of_flag;
        num_unarmed_.fetch_sub(1, std::memory_order_relaxed);
        if (aborted || task->num_left.load(std::memory_order_relaxed) == 0) {
          skipped.push_back(task);
          continue;
        }
        Arm(task);
        armed_any = true;
      }
      if (queue.first == nullptr) {
        queue = unarmed_.back();
        unarmed_.pop_back();
      } else {
        ++q;
      }
    }
  }
  for (Task* task : skipped) Complete(task);
  if (armed_any) AnnounceWork();
  return armed_any;
}

void CpuAttention::PollFlagsSometimes(int64_t interval_ns) {
  if (num_unarmed_.load(std::memory_order_relaxed) == 0 || polling_.load(std::memory_order_relaxed)) return;
  if (SteadyNowNs() - last_poll_ns_.load(std::memory_order_relaxed) < interval_ns) return;
  if (polling_.exchange(true, std::memory_order_acquire)) return;
  PollFlags();
  last_poll_ns_.store(SteadyNowNs(), std::memory_order_relaxed);
  polling_.store(false, std::memory_order_release);
}

CpuAttention::Task* CpuAttention::EnterTask() {
  // Here too: while all workers go from task to task none of them is idle.
  PollFlagsSometimes(kBusyPollNs);
  const auto lock = SpinLock();
  // The last to the first: a task that leaves is replaced by the last one.
  for (size_t i = armed_.size(); i-- > 0;) {
    Task* task = all_tasks_[static_cast<size_t>(armed_[i].slot)].get();
    if (armed_[i].begun && !task->HasItems()) Disarm(task);
  }
  if (armed_.empty()) return nullptr;
  if (progress_ != nullptr) pace_.SeePass(progress_->load(std::memory_order_relaxed), SteadyNowNs());
  ArmedTask& picked = armed_[PickTask(armed_, options_.order, pace_)];
  picked.begun = true;
  Task* task = all_tasks_[static_cast<size_t>(picked.slot)].get();
  ++task->users;
  return task;
}

void CpuAttention::LeaveTask(Task* task) {
  const auto lock = SpinLock();
  // It has no items left, but may still be among the armed ones, where a new use of it must not be found.
  Disarm(task);
  if (--task->users == 0 && task->finished) spare_.push_back(task);
}

// After the last item: nothing of the plan or the layer is touched from here on.
void CpuAttention::Complete(Task* task) {
  const AttentionTask done = task->task;
  const bool aborted = done.ready != nullptr && done.ready->aborted();
  const int64_t kv_bytes = aborted ? 0 : done.plan->kv_bytes();
  const int64_t attended_kv_bytes = aborted ? 0 : done.plan->attended_kv_bytes();
  const int64_t now_ns = SteadyNowNs();
  if (done.done != nullptr) {
    if (aborted) {
      done.done->Abort();
    } else {
      done.done->Set(done.done_value);
    }
  }
  const auto lock = SpinLock();
  task->finished = true;
  ++stats_.num_tasks;
  stats_.kv_bytes += kv_bytes;
  stats_.attended_kv_bytes += attended_kv_bytes;
  if (kv_bytes > 0) {
    const int64_t begin_ns = std::max(task->armed_ns, last_done_ns_);
    if (now_ns > begin_ns) {
      task_ns_ += now_ns - begin_ns;
      last_done_ns_ = now_ns;
      pace_.SeeTask(kv_bytes, now_ns - begin_ns);
      if (options_.timeline != nullptr)
        options_.timeline->Add(options_.timeline_lane, done.name, done.number, begin_ns, now_ns);
    }
  }
  if (task->users == 0) spare_.push_back(task);
  if (--num_unfinished_ == 0) idle_.notify_all();
}

}  // namespace tandem
