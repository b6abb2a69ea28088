// Which requests an online benchmark sends, and when.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/arrivals.h"
#include "bench/workload.h"

namespace tandem {

struct OnlinePlanOptions {
  std::string workload;      // as LoadWorkload takes it, or sessions (agent_sessions.h)
  int64_t num_requests = 0;  // or sessions, if their name says no number; 0: as many as are due in
                             // duration_s, or 1000 requests, 100 sessions
  ArrivalOptions arrivals;
  double duration_s = 0;                 // no request is due later; 0: all are sent
  int64_t max_concurrency = 0;           // 0: no limit
  std::optional<int64_t> max_model_len;  // longer requests are left out; absent: not known
  uint64_t seed = 0;
};

struct OnlinePlan {
  Workload workload;  // its arrival times are those of times_s; first turns alone have one
  ArrivalPlan arrivals;
  std::vector<double> times_s;  // when each is due, from the start; of sessions when each begins
  double span_s = 0;            // requests arrive until then
};

// Errors: those of LoadWorkload, PlanArrivals and ArrivalTimes; all requests are too long.
Result<OnlinePlan> PlanOnlineBench(const OnlinePlanOptions& options);

}  // namespace tandem
