#include "planning/choice.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/largest_that.h"

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

// Behind the work of a schedule.
CopyDown CopyDownOf(const Findings& findings, const Schedule& schedule) {
  const PlanningInput& input = findings.input;
  const CapacityView& capacity = input.capacity;
  // The copies of requests that move come first.
  const bool idle = schedule.us == 0 || !findings.room.books.moves().empty();
  if (idle || !input.state.cpu_tier_usable || capacity.total_blocks(Tier::kCpu) == 0) return {};
  const auto tier_blocks = static_cast<double>(capacity.total_blocks(Tier::kGpu));
  const auto request_blocks = input.state.mean_context / static_cast<double>(capacity.block_size());
  const auto margin = static_cast<int64_t>(
      std::min(tier_blocks, std::max(input.tuning.copied_down_of_tier * tier_blocks,
                                     input.tuning.copied_down_requests * request_blocks)));
  const int64_t num_without_loss = capacity.blocks_without_loss(Tier::kGpu);
  const int64_t num_left = capacity.free_blocks(Tier::kGpu) - num_without_loss;
  // Many at once, not some in each iteration: an iteration with copies is not enqueued ahead.
  if (num_left == 0 || num_without_loss >= margin / 2) return {};
  const double most_us =
      input.tuning.copied_down_of_layer * schedule.us / static_cast<double>(input.costs.num_layers());
  const int64_t max_blocks = LargestThat(std::min(margin, num_left), [&](int64_t num_blocks) {
    return input.costs.SwapUs(num_blocks * capacity.block_size()) <= most_us;
  });
  const bool pays = input.state.cached_share >= input.tuning.copied_down_from_share;
  return {.margin = margin,
          .max_blocks = std::max<int64_t>(1, max_blocks),
          .one_in = pays ? 1 : input.tuning.copied_down_one_in};
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
  plan.copy_down = CopyDownOf(findings, schedule);
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
  plan.strategy = NameOf(findings, waits_for_cpu, uses_cpu_tier || in_transit);
  return plan;
}

}  // namespace tandem
