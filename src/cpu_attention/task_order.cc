#include "cpu_attention/task_order.h"

#include <algorithm>
#include <tuple>

namespace tandem {
namespace {

// Passes that one measurement spans, so that the pause between iterations counts with its share.
constexpr int64_t kPassesMeasured = 32;
constexpr double kPassWeight = 0.25;
constexpr double kTaskWeight = 0.125;
// A device that had nothing to do has not become slower.
constexpr double kMaxSlowdown = 2;
// Under overload every task is begun as late as its lead allows: without a margin, half of them would be too
// late. Being early by the margin costs next to nothing.
constexpr double kLeadMargin = 1.25;

}  // namespace

void TaskPace::SeePass(int64_t pass, int64_t now_ns) {
  if (pass == pass_) return;
  const bool first = mark_pass_ < 0 || pass < pass_;
  pass_ = pass;
  if (!first && pass - mark_pass_ < kPassesMeasured) return;
  if (!first) {
    double measured = static_cast<double>(now_ns - mark_ns_) / static_cast<double>(pass - mark_pass_);
    if (pass_ns_ > 0) {
      measured = std::min(measured, kMaxSlowdown * pass_ns_);
      measured = pass_ns_ + kPassWeight * (measured - pass_ns_);
    }
    pass_ns_ = measured;
    UpdateLead();
  }
  mark_pass_ = pass;
  mark_ns_ = now_ns;
}

void TaskPace::SeeTask(int64_t kv_bytes, int64_t task_ns) {
  if (kv_bytes <= 0 || task_ns <= 0) return;
  const double measured = static_cast<double>(task_ns) / static_cast<double>(kv_bytes);
  ns_per_byte_ = ns_per_byte_ > 0 ? ns_per_byte_ + kTaskWeight * (measured - ns_per_byte_) : measured;
  UpdateLead();
}

void TaskPace::UpdateLead() {
  lead_per_byte_ = pass_ns_ > 0 ? kLeadMargin * ns_per_byte_ / pass_ns_ : 0;
}

int64_t TaskPace::LeadPasses(int64_t kv_bytes) const {
  if (lead_per_byte_ == 0) return 0;
  return static_cast<int64_t>(lead_per_byte_ * static_cast<double>(kv_bytes)) + 1;
}

size_t PickTask(std::span<const ArmedTask> tasks, TaskOrder order, const TaskPace& pace) {
  // Most calls end here: the first worker has begun a task, and the others follow.
  const ArmedTask* first = nullptr;
  for (const ArmedTask& task : tasks) {
    const bool waited_for = order == TaskOrder::kArming || task.wanted_at < 0;
    if (!waited_for && !task.begun) continue;
    const bool first_waited_for = first != nullptr && (order == TaskOrder::kArming || first->wanted_at < 0);
    if (first == nullptr || (waited_for == first_waited_for ? task.number < first->number : waited_for))
      first = &task;
  }
  if (first != nullptr) return static_cast<size_t>(first - tasks.data());

  // Compared from left to right; the smallest is picked.
  struct Rank {
    int64_t missed = 0;  // the more, the smaller
    int64_t want = 0;
    uint64_t number = 0;
    bool operator<(const Rank& other) const {
      return std::tie(missed, want, number) < std::tie(other.missed, other.want, other.number);
    }
  };
  size_t best = 0;
  Rank best_rank;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const ArmedTask& task = tasks[i];
    Rank rank{.want = task.wanted_at, .number = task.number};
    const int64_t too_early = pace.pass() + pace.LeadPasses(task.kv_bytes);
    if (task.period > 0 && task.wanted_at <= too_early) {
      const int64_t missed = (too_early - task.wanted_at) / task.period + 1;
      rank.missed = -(missed / 2);
      rank.want += missed * task.period;
    }
    if (i == 0 || rank < best_rank) {
      best = i;
      best_rank = rank;
    }
  }
  return best;
}

}  // namespace tandem
