// When the requests of an online benchmark are due.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/workload.h"

namespace tandem {

enum class ArrivalKind {
  kPoisson,   // independent gaps of mean 1 / rate
  kConstant,  // a request every 1 / rate
  kTrace,     // the trace's own times, scaled
};

std::string_view ArrivalKindName(ArrivalKind kind);

struct ArrivalOptions {
  // Absent: trace if time_scale is given, else Poisson.
  std::optional<ArrivalKind> kind;
  // Requests a second; infinite: all are due at once. With kTrace: the trace's times are scaled so that this
  // is their mean rate.
  std::optional<double> rate;
  std::optional<double> time_scale;  // factor of the trace's times; absent: 1
};

// What the options come to.
struct ArrivalPlan {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double rate = std::numeric_limits<double>::infinity();  // of kPoisson and kConstant
  std::optional<double> trace_rate;                       // of kTrace, if its times are scaled to a rate
  double time_scale = 1;                                  // of kTrace, if they are not
};

// Errors: kInvalidArgument; param is the flag at fault ("rate", "time-scale", "arrivals").
Result<ArrivalPlan> PlanArrivals(const ArrivalOptions& options);

// Seconds from the start of the run at which each request is due: ascending, the first is 0. A function of
// the arguments only, and the times of the first n requests do not depend on how many follow (but for a
// trace that is scaled to a rate). Errors: kInvalidArgument, param "arrivals" or "rate": the workload has no
// times, or they are all the same and have no rate.
Result<std::vector<double>> ArrivalTimes(const std::vector<WorkloadRequest>& requests,
                                         const ArrivalPlan& plan, uint64_t seed);

// How long these arrivals last: until one mean gap after the last.
double ArrivalSpan(const std::vector<double>& times_s);

}  // namespace tandem
