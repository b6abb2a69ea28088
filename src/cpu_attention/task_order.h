// Which armed task of CPU attention comes next.
//
// Somebody may wait for a task: then it goes first. Others are wanted when the GPU passes their layer, once
// an iteration (riding cohorts, APEX section 3.3):
//
//   pass       10          11          12          13          14      ...
//   wanted      a           b           c           d           e
//   CPU         (a is late) |----- b --|----- c ---|----- d ----| ...
//
// a is wanted again in the next iteration.
//
// A task that misses its pass is not computed in vain, and all of them have a whole iteration: of tasks of
// one size, any order makes as many in time. If the CPU has too much to do, though, its backlog is an
// iteration long, and in order of arming the GPU would wait for all of it. And the larger tasks should miss
// their pass, not all tasks that happen to stand behind them: so those that cannot be done in time any more
// step back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

enum class TaskOrder {
  kArming,  // first armed, first served
  kWanted,
};

// How fast the device passes boundaries and how fast tasks are. One thread at a time.
class TaskPace {
 public:
  // pass: that the device has reached last.
  void SeePass(int64_t pass, int64_t now_ns);
  // Passes are counted anew; as fast as they were.
  void ForgetPasses() { pass_ = mark_pass_ = -1; }
  // A task that read kv_bytes took this long.
  void SeeTask(int64_t kv_bytes, int64_t task_ns);

  int64_t pass() const { return pass_; }
  // Passes that go by while a task runs, rounded up, with a margin; 0 as long as it is not known.
  int64_t LeadPasses(int64_t kv_bytes) const;

 private:
  void UpdateLead();

  int64_t pass_ = -1;
  int64_t mark_pass_ = -1;  // where the present measurement of pass_ns_ began
  int64_t mark_ns_ = 0;
  double pass_ns_ = 0;      // 0: not known
  double ns_per_byte_ = 0;  // 0: not known
  double lead_per_byte_ = 0;
};

struct ArmedTask {
  uint64_t number = 0;     // in order of arming
  int64_t wanted_at = -1;  // a pass; -1: somebody waits
  int64_t period = 0;      // passes; 0: wanted once
  int64_t kv_bytes = 0;
  int32_t slot = 0;    // the caller's
  bool begun = false;  // some of its items have been claimed
};

// The place of the task that comes next among tasks that have unclaimed items; 0 of none. Takes time in
// proportion to their number.
//
// kWanted: those that somebody waits for, in order of arming; then one that has been begun; then by the next
// pass that a task can still be done for: wanted_at, or a number of periods later. Nobody starves: every two
// passes that a task has missed raise it above all that have missed fewer, so it gets to the top. That costs
// the others no more than the time that the task takes at any other moment.
size_t PickTask(std::span<const ArmedTask> tasks, TaskOrder order, const TaskPace& pace);

}  // namespace tandem
