#include "planning/choice.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "planning/copy_down.h"

namespace tandem {
namespace {

constexpr double kBeyondRounding = 1 + 1e-9;

// More merit a microsecond; first of all the limit of an iteration is kept to.
bool IsBetter(const Findings& findings, const Schedule& a, const Schedule& b, double Schedule::*merit) {
  const Target& target = findings.target;
  if (target.within_limit(a.us) != target.within_limit(b.us)) return target.within_limit(a.us);
  if (!target.within_limit(a.us)) {
    const double about_the_same = findings.input.tuning.about_the_same_time;
    if (a.us * about_the_same < b.us) return true;
    if (b.us * about_the_same < a.us) return false;
  }
  return a.*merit * b.us > b.*merit * a.us * kBeyondRounding;
}

// What the iteration is: a strategy that chooses names what it has chosen.
std::string_view NameOf(const Findings& findings, bool waits_for_cpu, bool uses_cpu_tier) {
  const Aims& aims = findings.input.aims;
  if (aims.offloads_all()) return aims.name;
  if (!uses_cpu_tier && !waits_for_cpu) return "gpu-only";
  if (aims.overlap != OverlapChoice::kBetter) return aims.name;
  return findings.target.rides && !waits_for_cpu ? "async" : "asymmetric";
}

// False if no chunks are in transit.
bool WriteInTransit(const Findings& findings, const Schedule& schedule, IterationPlan* plan) {
  const TransitRules& rules = findings.admission.transit;
  // Two ids are for cohorts of decodes.
  CohortStep step{.cohort = findings.room.riders.FreshId() + 2,
                  .rows = findings.admission.prompts.entering_transit()};
  if (rules.in_flight != nullptr) {
    const InFlightCohort& cohort = *rules.in_flight;
    step = {.cohort = cohort.cohort, .rows = cohort.rows, .cursor = cohort.cursor};
  }
  if (step.rows.empty()) return false;
  step.visits = VisitsInTransit(rules, findings.input.costs, step.rows, step.cursor, schedule.us);
  plan->cohorts.push_back(std::move(step));
  return true;
}

}  // namespace

Schedule Choose(const Findings& findings) {
  Schedule best;            // of all budgets
  Schedule best_of_budget;  // by work
  const TakeSchedule take = [&](const Schedule& schedule) {
    if (schedule.us == 0) return;
    if (best_of_budget.us == 0 || IsBetter(findings, schedule, best_of_budget, &Schedule::work_us))
      best_of_budget = schedule;
  };
  const auto end_budget = [&] {
    if (best_of_budget.us == 0) return;
    // Of equals the one with more prefill, which comes later: fewer iterations.
    if (best.us == 0 || !IsBetter(findings, best, best_of_budget, &Schedule::wanted_work_us))
      best = best_of_budget;
    best_of_budget = {};
  };
  for (const int64_t budget : PrefillBudgets(findings)) {
    if (findings.input.offloads_all() && !findings.room.cpu_rows.empty()) {
      ProposeAllRows(findings, budget, take);
    } else {
      ProposeHiddenRows(findings, budget, take);
    }
    end_budget();
  }
  // Who is begun goes on: rows that ride beside a prompt do little of a token's work in it.
  const bool alone = findings.room.gpu_rows.empty() &&
                     (findings.admission.prompts.num_tokens() == 0 || !findings.target.rides);
  if (alone) ProposeRowsAlone(findings, take);
  end_budget();
  return best;
}

IterationPlan WritePlan(const Findings& findings, const Schedule& schedule) {
  const Room& room = findings.room;
  const int64_t num_layers = findings.input.state.limits.num_layers;
  IterationPlan plan;
  plan.dropped = room.books.dropped();
  plan.preempted = room.books.preempted();
  plan.moves = room.books.moves();
  // The copies of requests that move come first.
  if (plan.moves.empty()) plan.copy_down = CopyDownBeside(findings.input, schedule.us);
  findings.admission.prompts.Write(schedule.prefill_tokens, &plan);
  const bool prefills_cpu_tier = std::any_of(plan.main.spans.begin(), plan.main.spans.end(),
                                             [](const RowSpan& chunk) { return chunk.tier == Tier::kCpu; });
  plan.main.spans.insert(plan.main.spans.end(), room.gpu_rows.begin(), room.gpu_rows.end());
  WriteRows(schedule.alone ? room.free_cpu_rows : room.cpu_rows, schedule.fill, num_layers,
            room.riders.FreshId(), &plan);
  room.riders.WriteOwn(schedule.own_begin, schedule.own_end, num_layers, &plan);
  const bool waits_for_cpu = plan.main.attends_on_cpu() || !plan.cohorts.empty();
  if (!schedule.alone && !plan.main.empty())
    room.riders.WriteRiding(schedule.own_begin, schedule.own_end, &plan);
  const bool uses_cpu_tier = !plan.cohorts.empty() || prefills_cpu_tier;
  const bool in_transit = WriteInTransit(findings, schedule, &plan);
  plan.promise = findings.target.promise;
  plan.strategy = NameOf(findings, waits_for_cpu, uses_cpu_tier || in_transit);
  return plan;
}

}  // namespace tandem
