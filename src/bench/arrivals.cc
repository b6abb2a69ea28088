#include "bench/arrivals.h"

#include <cmath>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/param_error.h"
#include "bench/seeded_draws.h"

namespace tandem {
namespace {

Result<std::vector<double>> TraceTimes(const std::vector<WorkloadRequest>& requests,
                                       const ArrivalPlan& plan) {
  std::vector<double> times_s;
  times_s.reserve(requests.size());
  for (const WorkloadRequest& request : requests) {
    if (!request.arrival_s) {
      return MakeParamError(ErrorCode::kInvalidArgument, "arrivals",
                            "the workload has no times of its own (no column arrival_s): use "
                            "--arrivals poisson or constant");
    }
    times_s.push_back(*request.arrival_s - *requests.front().arrival_s);
  }
  double scale = plan.time_scale;
  if (plan.trace_rate && requests.size() > 1) {
    const double span_s = times_s.back();
    if (!(span_s > 0)) {
      return MakeParamError(ErrorCode::kInvalidArgument, "rate",
                            "all {} requests of the trace come at the same time: there is no rate to scale",
                            requests.size());
    }
    scale = static_cast<double>(requests.size() - 1) / span_s / *plan.trace_rate;
  }
  for (double& time_s : times_s) time_s *= scale;
  return times_s;
}

}  // namespace

std::string_view ArrivalKindName(ArrivalKind kind) {
  switch (kind) {
    case ArrivalKind::kPoisson:
      return "poisson";
    case ArrivalKind::kConstant:
      return "constant";
    case ArrivalKind::kTrace:
      return "trace";
  }
  TANDEM_CHECK(false, "arrivals of kind {}", static_cast<int>(kind));
}

Result<ArrivalPlan> PlanArrivals(const ArrivalOptions& options) {
  ArrivalPlan plan;
  plan.kind = options.kind.value_or(options.time_scale ? ArrivalKind::kTrace : ArrivalKind::kPoisson);
  if (options.rate && !(*options.rate > 0)) {
    return MakeParamError(ErrorCode::kInvalidArgument, "rate", "{} is no number of requests a second",
                          *options.rate);
  }
  if (options.time_scale && !(*options.time_scale > 0 && std::isfinite(*options.time_scale))) {
    return MakeParamError(ErrorCode::kInvalidArgument, "time-scale", "{} is no factor of times",
                          *options.time_scale);
  }
  if (plan.kind != ArrivalKind::kTrace) {
    if (options.time_scale) {
      return MakeParamError(ErrorCode::kInvalidArgument, "time-scale",
                            "only the times of a trace are scaled, and the arrivals are {}",
                            ArrivalKindName(plan.kind));
    }
    plan.rate = options.rate.value_or(plan.rate);
    return plan;
  }
  if (options.rate && options.time_scale) {
    return MakeParamError(ErrorCode::kInvalidArgument, "time-scale",
                          "the times of a trace are scaled by a factor or to a --rate, not both");
  }
  if (options.rate && std::isinf(*options.rate)) {
    return MakeParamError(ErrorCode::kInvalidArgument, "rate",
                          "a trace's times have no infinite rate: leave --arrivals trace out");
  }
  plan.trace_rate = options.rate;
  plan.time_scale = options.time_scale.value_or(1.0);
  return plan;
}

Result<std::vector<double>> ArrivalTimes(const std::vector<WorkloadRequest>& requests,
                                         const ArrivalPlan& plan, uint64_t seed) {
  TANDEM_CHECK(!requests.empty(), "arrivals of no requests");
  if (plan.kind == ArrivalKind::kTrace) return TraceTimes(requests, plan);
  // Lengths are drawn from the seed itself.
  constexpr uint64_t kArrivalSeed = 0x2545f4914f6cdd1dU;
  std::mt19937_64 random(seed ^ kArrivalSeed);
  std::vector<double> times_s(requests.size());
  if (std::isinf(plan.rate)) return times_s;
  double gaps = 0;
  for (size_t i = 1; i < times_s.size(); ++i) {
    gaps += plan.kind == ArrivalKind::kPoisson ? DrawExponential(random) : 1.0;
    times_s[i] = gaps / plan.rate;
  }
  return times_s;
}

double ArrivalSpan(const std::vector<double>& times_s) {
  TANDEM_CHECK(!times_s.empty(), "the span of no arrivals");
  const auto count = static_cast<double>(times_s.size());
  return count < 2 ? 0 : times_s.back() * count / (count - 1);
}

}  // namespace tandem
