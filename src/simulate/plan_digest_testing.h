// What the scheduler plans, in digests: for scenarios and for whole workloads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::testing {

struct PlanDigest {
  std::string name;  // of the scenario file or the workload
  int64_t num_iterations = 0;
  uint64_t digest = 0;  // of the text of all plans
  double predicted_us = 0;
  int64_t preemptions = 0;
  int64_t swaps = 0;
  // Host time of a plan; not of the text.
  double mean_plan_us = 0;
  double p99_plan_us = 0;

  // "NAME: N iterations, plans DIGEST[, S s, P preemptions, W swaps]"
  std::string Text() const;
};

// only: part of the names that are wanted. on_text: gets the plans as plan_text_testing.h has them. Errors:
// a scenario that cannot be read, a plan that breaks a rule.
Result<std::vector<PlanDigest>> DigestPlans(const std::string& scenario_folder, std::string_view only,
                                            const std::function<void(std::string_view)>& on_text);

}  // namespace tandem::testing
