// CPU attention of cohorts that are amid a token, as the simulation sees it: one server that works at the
// tasks in the order in which the main sub-batch will want them, while that passes from boundary to boundary.
#pragma once

#include <cstdint>
#include <map>

#include "plan/iteration_plan.h"

namespace tandem {

class SimulatedCpu {
 public:
  explicit SimulatedCpu(int64_t num_layers) : num_layers_(num_layers) {}
  // Attention of `layer` for a cohort: wanted at the boundary behind it, again in every iteration.
  void Arm(CohortId cohort, int64_t layer, double us) { tasks_[cohort] = {layer, us}; }
  void Forget(CohortId cohort) { tasks_.erase(cohort); }
  // Nothing is left to do for it.
  bool done(CohortId cohort) const {
    const auto found = tasks_.find(cohort);
    return found == tasks_.end() || found->second.us_left <= 0;
  }
  // The main sub-batch has passed `boundary` and is on its way to the next: so much time for these tasks.
  void Work(int64_t boundary, double us);

 private:
  struct Task {
    int64_t layer = 0;
    double us_left = 0;
  };
  // The one that is wanted first of those that can still end in time; null: none is left.
  Task* Next(int64_t boundary, double us_left, double us_a_boundary);

  int64_t num_layers_;
  std::map<CohortId, Task> tasks_;
};

}  // namespace tandem
