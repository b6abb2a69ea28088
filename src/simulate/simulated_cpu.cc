#include "simulate/simulated_cpu.h"

#include <algorithm>

namespace tandem {

void SimulatedCpu::Work(int64_t boundary, double us) {
  double us_left = us;
  while (us_left > 0) {
    Task* task = Next(boundary, us_left, us);
    if (task == nullptr) return;
    const double worked_us = std::min(us_left, task->us_left);
    task->us_left -= worked_us;
    us_left -= worked_us;
  }
}

SimulatedCpu::Task* SimulatedCpu::Next(int64_t boundary, double us_left, double us_a_boundary) {
  Task* next = nullptr;
  int64_t next_wanted = 0;
  for (auto& [cohort, task] : tasks_) {
    if (task.us_left <= 0) continue;
    const int64_t num_boundaries = num_layers_ + 1;
    int64_t wanted = task.layer > boundary ? task.layer : task.layer + num_boundaries;
    if (static_cast<double>(wanted - boundary - 1) * us_a_boundary + us_left < task.us_left)
      wanted += num_boundaries;
    if (next != nullptr && wanted >= next_wanted) continue;
    next = &task;
    next_wanted = wanted;
  }
  return next;
}

}  // namespace tandem
