#include "bench/online_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tandem {
namespace {

constexpr int64_t kDefaultRequests = 1000;
constexpr int64_t kMaxRequests = int64_t{1} << 24;

// A plan, and where in the workload its requests stand: some were too long.
struct Draft {
  OnlinePlan plan;
  std::vector<int64_t> positions;
};

Result<Draft> DraftPlan(const OnlinePlanOptions& options, const ArrivalPlan& arrivals, int64_t num_requests) {
  Draft draft;
  OnlinePlan& plan = draft.plan;
  plan.arrivals = arrivals;
  TANDEM_ASSIGN_OR_RETURN(plan.workload, LoadWorkload(options.workload, num_requests, options.seed));
  const int64_t max_len = options.max_model_len.value_or(std::numeric_limits<int64_t>::max());
  for (size_t i = 0; i < plan.workload.requests.size(); ++i) {
    const WorkloadRequest& request = plan.workload.requests[i];
    if (request.prompt_tokens + request.output_tokens <= max_len)
      draft.positions.push_back(static_cast<int64_t>(i));
  }
  DropTooLong(max_len, &plan.workload);
  if (plan.workload.requests.empty()) return draft;
  TANDEM_ASSIGN_OR_RETURN(plan.times_s, ArrivalTimes(plan.workload.requests, arrivals, options.seed));
  plan.span_s = ArrivalSpan(plan.times_s);
  return draft;
}

// Leaves out what is due at the end of the duration or later.
void CutOff(const OnlinePlanOptions& options, Draft* draft) {
  OnlinePlan& plan = draft->plan;
  const auto end = std::lower_bound(plan.times_s.begin(), plan.times_s.end(), options.duration_s);
  plan.times_s.erase(end, plan.times_s.end());
  const size_t count = plan.times_s.size();
  plan.workload.requests.resize(count);
  plan.workload.num_dropped = draft->positions[count - 1] + 1 - static_cast<int64_t>(count);
  // A limit of concurrency keeps requests back: they are sent until the duration is over.
  plan.span_s = options.max_concurrency > 0 ? options.duration_s : std::min(plan.span_s, options.duration_s);
}

}  // namespace

Result<OnlinePlan> PlanOnlineBench(const OnlinePlanOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const ArrivalPlan arrivals, PlanArrivals(options.arrivals));
  const bool all_at_once = arrivals.kind != ArrivalKind::kTrace && std::isinf(arrivals.rate);
  // How many requests arrive in a given time is known only once they are drawn.
  const bool until_duration = options.num_requests == 0 && options.duration_s > 0 && !all_at_once;
  int64_t num_requests = options.num_requests > 0 ? options.num_requests : kDefaultRequests;
  TANDEM_ASSIGN_OR_RETURN(Draft draft, DraftPlan(options, arrivals, num_requests));
  const auto is_short = [&] {
    return draft.plan.times_s.empty() || draft.plan.times_s.back() < options.duration_s;
  };
  while (until_duration && is_short() && num_requests < kMaxRequests) {
    num_requests = std::min(2 * num_requests, kMaxRequests);
    TANDEM_ASSIGN_OR_RETURN(draft, DraftPlan(options, arrivals, num_requests));
  }
  OnlinePlan& plan = draft.plan;
  if (options.duration_s > 0 && !plan.times_s.empty()) CutOff(options, &draft);
  if (options.max_model_len) TANDEM_RETURN_IF_ERROR(KeepFitting(*options.max_model_len, &plan.workload));
  for (size_t i = 0; i < plan.times_s.size(); ++i) plan.workload.requests[i].arrival_s = plan.times_s[i];
  return std::move(draft.plan);
}

}  // namespace tandem
