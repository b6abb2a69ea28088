// Pieces of work that are played with predicted times, one for each way in which strategies, machines, limits
// and requests can meet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perf/analytic_costs.h"
#include "simulate/schedule_simulation.h"

namespace tandem::testing {

struct PlannedWorkload {
  std::string_view name;
  std::string_view strategy;
  AnalyticCosts costs;
  bool knows_costs = true;  // the strategy does
  int64_t gpu_tokens = 26'400;
  int64_t cpu_tokens = 600'000;
  ScheduleLimits limits;
  int64_t num_requests = 0;
  int64_t prompt_len = 0;
  int64_t output_len = 0;
  int64_t spread_percent = 10;    // lengths are uniform in +- so much
  double gap_us = 0;              // mean time between two arrivals; 0: all are there from the start
  int64_t flexible_percent = 0;   // of the requests
  int64_t num_begun = 0;          // amid their outputs at the start
  int64_t failed_iterations = 0;  // for so many from the start the cpu tier is not usable
  double join_probability = -1;   // of riding cohorts; below 0: as the CPU gets through
  int64_t max_iterations = 2'500;
};

std::vector<PlannedWorkload> PlannedWorkloads();

// The simulation as it is before the first iteration.
class PlayedWorkload {
 public:
  explicit PlayedWorkload(const PlannedWorkload& workload, const PlannerTuning& tuning = {});
  // Lets those in that have arrived. False: everything has ended, or the iterations are over.
  bool Next();
  ScheduleSimulation& simulation() { return simulation_; }
  int64_t iteration() const { return iteration_; }

 private:
  void Submit();

  const PlannedWorkload& workload_;
  ScheduleSimulation simulation_;
  int64_t iteration_ = -1;
  int64_t num_submitted_ = 0;
  double due_us_ = 0;
  double idle_us_ = 0;  // with nothing to do
};

}  // namespace tandem::testing
