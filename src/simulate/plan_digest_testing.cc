#include "simulate/plan_digest_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/fnv1a.h"
#include "simulate/plan_text_testing.h"
#include "simulate/plan_workloads_testing.h"
#include "simulate/scenario_file_testing.h"
#include "simulate/switching_testing.h"

namespace tandem::testing {
namespace {

// A digest while plans come.
class Digester {
 public:
  Digester(std::string name, const std::function<void(std::string_view)>& on_text) : on_text_(on_text) {
    digest_.name = std::move(name);
    on_text_("== " + digest_.name + "\n");
  }

  IterationPlan Plan(Strategy* strategy, const ScheduleState& state, const CapacityView& capacity) {
    const auto begin = std::chrono::steady_clock::now();
    IterationPlan plan = strategy->Plan(state, capacity);
    plan_us_.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    const std::string text = PlanText(plan, digest_.num_iterations++);
    digest_.digest = Fnv1a(text, digest_.digest);
    on_text_(text);
    return plan;
  }

  PlanDigest End(const SimulationCounts& counts) {
    digest_.predicted_us = counts.us;
    digest_.preemptions = counts.preemptions;
    digest_.swaps = counts.swaps_in + counts.swaps_out;
    for (const double us : plan_us_) digest_.mean_plan_us += us / static_cast<double>(plan_us_.size());
    std::sort(plan_us_.begin(), plan_us_.end());
    if (!plan_us_.empty()) digest_.p99_plan_us = plan_us_[plan_us_.size() * 99 / 100];
    return digest_;
  }

 private:
  PlanDigest digest_;
  std::vector<double> plan_us_;
  const std::function<void(std::string_view)>& on_text_;
};

Result<PlanDigest> DigestWorkload(const PlannedWorkload& workload,
                                  const std::function<void(std::string_view)>& on_text) {
  Digester digester(std::string(workload.name), on_text);
  PlayedWorkload played(workload);
  TANDEM_ASSIGN_OR_RETURN(
      auto strategy, CreateAnyStrategy(workload.strategy, workload.knows_costs ? &workload.costs : nullptr));
  ScheduleSimulation& simulation = played.simulation();
  while (played.Next()) {
    const IterationPlan plan = digester.Plan(strategy.get(), simulation.state(), simulation.books());
    // Out of use, the cpu tier may hold all that there is.
    if (plan.empty() && !simulation.state().cpu_tier_usable) continue;
    if (plan.empty())
      return MakeError(ErrorCode::kInvalidArgument, "{}, iteration {}: nothing is planned", workload.name,
                       played.iteration());
    if (const Status applied = simulation.Apply(plan); !applied.ok())
      return MakeError(ErrorCode::kInvalidArgument, "{}, iteration {}: {}", workload.name, played.iteration(),
                       applied.error().message);
  }
  return digester.End(simulation.counts());
}

}  // namespace

std::string PlanDigest::Text() const {
  std::string text = fmt::format("{}: {} iterations, plans {:016x}", name, num_iterations, digest);
  if (predicted_us > 0)
    text += fmt::format(", {:.1f} s, {} preemptions, {} swaps", predicted_us / 1e6, preemptions, swaps);
  return text;
}

Result<std::vector<PlanDigest>> DigestPlans(const std::string& scenario_folder, std::string_view only,
                                            const std::function<void(std::string_view)>& on_text) {
  std::vector<PlanDigest> digests;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ScenarioFile> files, ReadScenarioFiles(scenario_folder));
  for (const ScenarioFile& file : files) {
    const std::string name = file.path.substr(file.path.rfind('/') + 1);
    if (name.find(only) == std::string::npos) continue;
    Digester digester(name, on_text);
    for (const Scenario& scenario : file.scenarios) {
      TANDEM_ASSIGN_OR_RETURN(auto strategy,
                              CreateStrategy(file.strategy, scenario.has_costs ? &scenario.costs : nullptr));
      digester.Plan(strategy.get(), scenario.state, scenario.capacity);
    }
    digests.push_back(digester.End({}));
  }
  for (const PlannedWorkload& workload : PlannedWorkloads()) {
    if (workload.name.find(only) == std::string_view::npos) continue;
    TANDEM_ASSIGN_OR_RETURN(PlanDigest digest, DigestWorkload(workload, on_text));
    digests.push_back(std::move(digest));
  }
  return digests;
}

}  // namespace tandem::testing
