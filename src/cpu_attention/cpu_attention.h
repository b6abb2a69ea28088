// CPU attention: decode attention over the cpu tier by a pool of pinned workers.
//
// Tasks (one layer of one batch each) are submitted ahead of time; a task is armed by the flag that announces
// its Q/K/V and sets a flag when its O is there, so that no host thread stands between a GPU and the workers:
//
//   submit(task, ready, done)     ... ready set ...        done set
//   worker 0      spin            | item 0 | item 3 |next task
//   worker 1      spin            | item 1 | item 2 |next task
//
// A task's last items overlap with the next task. Among armed tasks workers prefer what somebody waits for,
// then what the GPU will want next (task_order.h). Idle workers spin for a while (a layer's gap), then sleep;
// while tasks wait for their flags, one of them keeps looking at short intervals.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/timeline.h"
#include "cpu_attention/decode_plan.h"
#include "cpu_attention/task_order.h"
#include "device/device.h"
#include "simd/cpu_isa.h"

namespace tandem {

struct CpuAttentionOptions {
  int num_threads = 0;       // 0: one for each physical core
  bool leave_cores = false;  // with num_threads 0: leave some cores to the scheduler and the GPU's driver
  bool pin = true;           // each worker to a core of its own, from the last core down
  std::vector<int> nodes;    // of MachineTopology().numa_nodes, whose cores they are; empty: of all
  int num_cores_taken = 0;   // by the workers of other shards on these nodes
  int64_t spin_us = 50;      // how long an idle worker spins before it sleeps
  CpuIsa isa = BestCpuIsa();
  AttentionFetch fetch;
  int64_t most_readers = kRowsPerGroup;  // DecodeShape's, for those who make plans
  TaskOrder order = TaskOrder::kWanted;
  Timeline* timeline = nullptr;  // for a span a task; outlives the object
  std::string timeline_lane = "cpu attention";
};

// Everything it points to stays alive until done is set (or, without done, until WaitIdle returns).
struct AttentionTask {
  // Tasks of one plan must not run at the same time: the later one's ready flag is set after the earlier is
  // done.
  DecodePlan* plan = nullptr;
  DecodeLayer layer;
  // The task starts once ready has reached ready_value; null: at once. If ready is aborted, nothing is
  // computed and done is aborted too.
  Flag* ready = nullptr;
  uint32_t ready_value = 0;
  Flag* done = nullptr;
  uint32_t done_value = 0;
  // The pass (a boundary, counted over all iterations) at which the device looks whether the task is done;
  // -1: somebody waits for it from the start.
  int64_t wanted_at = -1;
  int64_t period = 0;  // missed, it is wanted again this many passes later
  // For timelines: static storage, and a number shown beside it (a layer).
  std::string_view name;
  int64_t number = -1;
};

// Sums since creation.
struct CpuAttentionStats {
  int64_t num_tasks = 0;  // done
  int64_t kv_bytes = 0;   // read by them
  // Of the contexts that their rows attended: what they would have read without one read for several rows.
  int64_t attended_kv_bytes = 0;
  int64_t busy_us = 0;  // over all workers; at most num_threads * elapsed time
  // Sum of the times that tasks took once their Q/K/V were there and the task before them was done.
  int64_t task_us = 0;
};

// Submit, WaitIdle and stats: any thread. Destruction waits for armed tasks and aborts the others.
class CpuAttention {
 public:
  explicit CpuAttention(const CpuAttentionOptions& options);
  ~CpuAttention();
  CpuAttention(const CpuAttention&) = delete;
  CpuAttention& operator=(const CpuAttention&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()); }
  const AttentionKernels& kernels() const { return kernels_; }
  int64_t most_readers() const { return options_.most_readers; }
  // "15 threads, AMX", and how it fetches and shares reads, if not by default: all that its speed depends on.
  std::string Description() const;

  // Where the pass can be read that the device has reached last, which AttentionTask::wanted_at refers to;
  // null: nowhere. It never goes back. Outlives the object, unless another call replaces it while no task is
  // left.
  void WatchProgress(const std::atomic<int64_t>* progress);

  // CHECKs the task's shapes. Does not block.
  void Submit(const AttentionTask& submitted);
  // Somebody waits from now on for the tasks armed by this flag, as if submitted with wanted_at -1.
  void Hurry(const Flag* ready);
  // Blocks until no submitted task is left.
  void WaitIdle();
  // Whether none is left.
  bool idle() const;
  CpuAttentionStats stats() const;

  // Runs work(thread) once on every worker, together, while no task is there: for measuring the same threads
  // and memory. Blocks.
  template <typename Work>
  void RunOnWorkers(const Work& work) {
    RunOnAll([](const void* context, int thread) { (*static_cast<const Work*>(context))(thread); }, &work);
  }

 private:
  struct Task;
  struct Worker;
  struct OnAll;
  // Tasks that wait for the same flag, in order of submission: values of a flag grow, so only the first is
  // looked at.
  struct FlagQueue {
    const Flag* flag = nullptr;
    Task* first = nullptr;
    Task* last = nullptr;
  };
  using Invoke = void (*)(const void* context, int thread);

  void RunOnAll(Invoke invoke, const void* context);
  void WorkerMain(Worker* worker);
  // The mutex after some spinning: it is held for less than it takes to sleep and wake up.
  std::unique_lock<std::mutex> SpinLock() const;
  // The armed task that comes next, with `users` counted up; null if there is none.
  Task* EnterTask();
  void LeaveTask(Task* task);
  // With mutex_ held:
  Task* NewTask();
  void Arm(Task* task);
  void Disarm(Task* task);  // if it is armed
  void RunItems(Task* task, Worker* worker);
  void RunPart(Task* task, int64_t part);
  void Complete(Task* task);
  // Arms what its flag allows. True if there is something new to do.
  bool PollFlags();
  // The same, unless someone else is at it or has just been, or there are no flags.
  void PollFlagsSometimes(int64_t interval_ns);
  void AnnounceWork();
  // Until there may be work.
  void WaitForWork(uint32_t seen_epoch);

  const CpuAttentionOptions options_;
  const AttentionKernels& kernels_;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Task>> all_tasks_;
  std::vector<Task*> spare_;        // of all_tasks_, to be used again
  std::vector<FlagQueue> unarmed_;  // none is empty
  std::vector<ArmedTask> armed_;    // in any order; those without unclaimed items leave it lazily
  uint64_t num_armed_ = 0;          // since creation
  TaskPace pace_;
  const std::atomic<int64_t>* progress_ = nullptr;
  std::condition_variable idle_;
  int64_t num_unfinished_ = 0;
  CpuAttentionStats stats_;
  int64_t task_ns_ = 0;
  int64_t last_done_ns_ = 0;
  OnAll* on_all_ = nullptr;

  // Advanced whenever there may be something new to do; idle workers watch it.
  alignas(64) std::atomic<uint32_t> work_epoch_{0};
  std::atomic<int64_t> num_unarmed_{0};
  std::atomic<bool> polling_{false};  // by one worker at a time
  std::atomic<int64_t> last_poll_ns_{0};
  std::atomic<bool> sentinel_{false};  // one worker stays awake while tasks wait for flags
  std::atomic<bool> stopping_{false};

  std::vector<std::unique_ptr<Worker>> workers_;
};

// Workers that leave room for the scheduler and a GPU's driver: all physical cores but one in eight, at least
// one.
int DefaultCpuAttentionThreads(bool leave_cores);

}  // namespace tandem
