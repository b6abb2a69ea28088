#include "bench/online_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "bench/agent_sessions.h"

namespace tandem {
namespace {

constexpr int64_t kDefaultRequests = 1000;
constexpr int64_t kDefaultSessions = 100;
// That a duration is filled with.
constexpr int64_t kMaxRequests = int64_t{1} << 22;
constexpr int64_t kMaxSessions = int64_t{1} << 18;

// A plan, and where in the workload what arrives stands: some was too long.
struct Draft {
  OnlinePlan plan;
  std::vector<int64_t> positions;
};

// What arrives at a time of its own: a request, or a session.
bool Arrives(const WorkloadRequest& request) {
  return !request.turn || request.turn->number == 0;
}

// num_arrivals: of requests or of sessions.
Result<Workload> MakeWorkload(const OnlinePlanOptions& options, int64_t num_arrivals) {
  if (!NamesSessions(options.workload)) return LoadWorkload(options.workload, num_arrivals, options.seed);
  TANDEM_ASSIGN_OR_RETURN(const SessionStyle style, ParseSessionStyle(options.workload));
  return DrawSessions(options.workload, style, num_arrivals, options.seed);
}

Result<Draft> DraftPlan(const OnlinePlanOptions& options, const ArrivalPlan& arrivals, int64_t num_arrivals) {
  Draft draft;
  OnlinePlan& plan = draft.plan;
  plan.arrivals = arrivals;
  TANDEM_ASSIGN_OR_RETURN(plan.workload, MakeWorkload(options, num_arrivals));
  const int64_t max_len = options.max_model_len.value_or(std::numeric_limits<int64_t>::max());
  for (size_t i = 0; i < plan.workload.requests.size(); ++i) {
    const WorkloadRequest& request = plan.workload.requests[i];
    // The last turn of a session is the longest.
    if ((request.turn && !request.turn->is_last) || request.prompt_tokens + request.output_tokens > max_len)
      continue;
    draft.positions.push_back(request.turn ? request.turn->session : static_cast<int64_t>(i));
  }
  DropTooLong(max_len, &plan.workload);
  if (plan.workload.requests.empty()) return draft;
  std::vector<WorkloadRequest> arriving;
  std::copy_if(plan.workload.requests.begin(), plan.workload.requests.end(), std::back_inserter(arriving),
               Arrives);
  TANDEM_ASSIGN_OR_RETURN(plan.times_s, ArrivalTimes(arriving, arrivals, options.seed));
  plan.span_s = ArrivalSpan(plan.times_s);
  return draft;
}

// Leaves out what is due at the end of the duration or later.
void CutOff(const OnlinePlanOptions& options, Draft* draft) {
  OnlinePlan& plan = draft->plan;
  const auto end = std::lower_bound(plan.times_s.begin(), plan.times_s.end(), options.duration_s);
  plan.times_s.erase(end, plan.times_s.end());
  const size_t count = plan.times_s.size();
  size_t num_arrived = 0;
  const auto first_late = std::find_if(
      plan.workload.requests.begin(), plan.workload.requests.end(),
      [&](const WorkloadRequest& request) { return Arrives(request) && num_arrived++ == count; });
  plan.workload.requests.erase(first_late, plan.workload.requests.end());
  plan.workload.num_dropped = draft->positions[count - 1] + 1 - static_cast<int64_t>(count);
  // A limit of concurrency keeps requests back: they are sent until the duration is over.
  plan.span_s = options.max_concurrency > 0 ? options.duration_s : std::min(plan.span_s, options.duration_s);
}

// How many requests or sessions are asked for; 0: it is not said.
Result<int64_t> NumArrivals(const OnlinePlanOptions& options) {
  if (!NamesSessions(options.workload)) return options.num_requests;
  TANDEM_ASSIGN_OR_RETURN(const SessionStyle style, ParseSessionStyle(options.workload));
  return style.num_sessions > 0 ? style.num_sessions : options.num_requests;
}

}  // namespace

Result<OnlinePlan> PlanOnlineBench(const OnlinePlanOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const ArrivalPlan arrivals, PlanArrivals(options.arrivals));
  TANDEM_ASSIGN_OR_RETURN(const int64_t num_wanted, NumArrivals(options));
  const bool all_at_once = arrivals.kind != ArrivalKind::kTrace && std::isinf(arrivals.rate);
  // How many arrive in a given time is known only once they are drawn.
  const bool until_duration = num_wanted == 0 && options.duration_s > 0 && !all_at_once;
  const bool are_sessions = NamesSessions(options.workload);
  const int64_t most = are_sessions ? kMaxSessions : kMaxRequests;
  int64_t num_arrivals = num_wanted > 0 ? num_wanted : (are_sessions ? kDefaultSessions : kDefaultRequests);
  TANDEM_ASSIGN_OR_RETURN(Draft draft, DraftPlan(options, arrivals, num_arrivals));
  const auto is_short = [&] {
    return draft.plan.times_s.empty() || draft.plan.times_s.back() < options.duration_s;
  };
  while (until_duration && is_short() && num_arrivals < most) {
    num_arrivals = std::min(2 * num_arrivals, most);
    TANDEM_ASSIGN_OR_RETURN(draft, DraftPlan(options, arrivals, num_arrivals));
  }
  OnlinePlan& plan = draft.plan;
  if (options.duration_s > 0 && !plan.times_s.empty()) CutOff(options, &draft);
  if (options.max_model_len) TANDEM_RETURN_IF_ERROR(KeepFitting(*options.max_model_len, &plan.workload));
  size_t num_arrived = 0;
  for (WorkloadRequest& request : plan.workload.requests) {
    if (Arrives(request)) request.arrival_s = plan.times_s[num_arrived++];
  }
  return std::move(draft.plan);
}

}  // namespace tandem
