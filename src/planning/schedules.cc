#include "planning/schedules.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "perf/time_model.h"

namespace tandem {
namespace {

// Of the main sub-batch, with those that ride at a boundary.
int64_t RowsBesidePrefill(const Findings& findings, const Schedule& schedule) {
  const Riders& riders = findings.room.riders;
  // Few cohorts, or one, are at few boundaries.
  const double most_cohorts = static_cast<double>(findings.input.num_visits());
  const bool everywhere =
      static_cast<double>(riders.cohorts().size()) >= findings.input.tuning.cohorts_everywhere * most_cohorts;
  const int64_t num_riders = everywhere ? riders.usual_rows() : 0;
  return schedule.load.main_rows() - schedule.load.prefill_tokens + num_riders;
}

// Cpu rows of the main sub-batch and riders come on top of a budget that filled its tiles without them: a few
// rows would cost another tile.
void FillTiles(const Findings& findings, Schedule* schedule) {
  const PrefillQueue& prompts = findings.admission.prompts;
  const LayerCosts& costs = findings.input.costs;
  const int64_t budget = schedule->prefill_tokens;
  const int64_t others = RowsBesidePrefill(findings, *schedule);
  // The end of what there is to prefill is not put off.
  const bool is_all = budget >= prompts.num_tokens() && prompts.ends_prompts();
  if (budget == 0 || is_all || others == 0) return;
  const int64_t num_cpu_rows = schedule->load.main_cpu_rows + schedule->load.cohort_rows;
  int64_t most = std::min(prompts.num_tokens(), findings.room.rows_left - num_cpu_rows);
  // A budget that admits nobody goes on doing so.
  if (budget <= prompts.num_begun_tokens()) most = std::min(most, prompts.num_begun_tokens());
  if (findings.target.max_iteration_us > 0) most = budget;
  const int64_t whole = costs.row_tiles().NearestWhole(others + budget) - others;
  if (whole <= 0 || whole == budget || whole > std::max(most, budget)) return;
  IterationLoad with_budget;
  prompts.AddTo(budget, costs, &with_budget);
  schedule->prefill_tokens = whole;
  schedule->load.num_sampled -= with_budget.num_sampled;
  schedule->load.swapped_tokens -= with_budget.swapped_tokens;
  prompts.AddTo(whole, costs, &schedule->load);
}

// As TimeModel prices the plan: a cohort that does not visit all layers counts with its share.
IterationLoad MeanLoadOf(const Findings& findings, const Schedule& schedule) {
  IterationLoad load = schedule.load;
  const int64_t num_visits = findings.input.num_visits();
  for (size_t i = schedule.own_begin; i < schedule.own_end; ++i) {
    const Riders::Cohort& cohort = findings.room.riders.cohorts()[i];
    const int64_t num_done = cohort.cursor() + 1;
    load.cohort_rows -= cohort.num_rows * num_done / num_visits;
    load.cohort_kv_tokens -= cohort.kv_tokens * num_done / num_visits;
  }
  return load;
}

// Of the work of a token in tokens: a row that rides makes one visit of L + 1, if the CPU is in time.
double TokensOf(const Findings& findings, const Schedule& schedule) {
  const IterationLoad& load = schedule.load;
  const auto num_layers = static_cast<double>(findings.input.costs.num_layers());
  auto tokens = static_cast<double>(load.decode_rows());
  for (size_t i = schedule.own_begin; i < schedule.own_end; ++i) {
    const Riders::Cohort& cohort = findings.room.riders.cohorts()[i];
    const auto done = static_cast<double>(cohort.cursor() + 1) / (num_layers + 1);
    tokens -= done * static_cast<double>(cohort.num_rows);
  }
  if (load.rider_rows == 0) return tokens;
  double in_time = 1;
  // The exchange takes none of the CPU's time.
  if (const double rider_us = load.rider_cpu_us - load.rider_exchange_us; rider_us > 0) {
    const double cpu_us =
        schedule.us - TimeModel(findings.input.costs).WaitedCpuUs(MeanLoadOf(findings, schedule));
    in_time = std::clamp(cpu_us / rider_us, 0.0, 1.0);
  }
  return tokens + in_time * static_cast<double>(load.rider_rows) / (num_layers + 1);
}

// The predicted time, no shorter than the copies of prefilled KV, and the work done in it. Once: adds the
// riders to the load.
void Price(const Findings& findings, Schedule* schedule) {
  IterationLoad& load = schedule->load;
  TANDEM_CHECK(load.rider_rows == 0, "a schedule with {} riders is priced twice", load.rider_rows);
  schedule->us = 0;
  if (load.main_rows() + load.cohort_rows == 0) return;
  const PlanningInput& input = findings.input;
  const Admission& admission = findings.admission;
  if (load.main_rows() > 0 && !schedule->alone)
    findings.room.riders.AddTo(schedule->own_begin, schedule->own_end, input.costs, &load);
  schedule->us = TimeModel(input.costs).IterationWithCopiesUs(MeanLoadOf(findings, *schedule));
  const auto prefilled = static_cast<double>(load.prefill_tokens);
  const double wanted = std::min(prefilled, admission.wanted_prefill_tokens);
  const double decode_work_us = admission.decoded_token_us * TokensOf(findings, *schedule);
  schedule->work_us = admission.prefilled_token_us * prefilled + decode_work_us;
  schedule->wanted_work_us =
      admission.prefilled_token_us * (input.tuning.wanted_prefill_worth * wanted +
                                      input.tuning.further_prefill_worth * (prefilled - wanted)) +
      decode_work_us;
}

// Of the gpu tier's decodes and so much prefill; without a price.
Schedule OfBudget(const Findings& findings, int64_t budget) {
  Schedule schedule{.prefill_tokens = budget, .load = findings.room.gpu_load};
  findings.admission.prompts.AddTo(budget, findings.input.costs, &schedule.load);
  return schedule;
}

Schedule WithoutCpuRows(const Findings& findings, int64_t budget) {
  Schedule schedule = OfBudget(findings, budget);
  Price(findings, &schedule);
  return schedule;
}

// Partial progress prioritization (APEX section 3.4): cohorts amid a token come before rows that begin one,
// furthest first, as far as they hide in the cohort of asymmetric pipelining. At the last layer no attention
// is left to hide: such a cohort rides.
void AddOwnVisits(const Findings& findings, int64_t max_rows, Schedule* schedule) {
  const std::vector<Riders::Cohort>& cohorts = findings.room.riders.cohorts();
  const LayerCosts& costs = findings.input.costs;
  IterationLoad& load = schedule->load;
  const TimeModel time(costs);
  const double window_us = time.CohortWindowUs(load);
  while (schedule->own_begin < cohorts.size() &&
         cohorts[schedule->own_begin].cursor() + 1 == costs.num_layers())
    ++schedule->own_begin;
  schedule->own_end = schedule->own_begin;
  for (; schedule->own_end < cohorts.size(); ++schedule->own_end) {
    const Riders::Cohort& cohort = cohorts[schedule->own_end];
    const int64_t num_rows = load.cohort_rows + cohort.num_rows;
    const int64_t kv_tokens = load.cohort_kv_tokens + cohort.kv_tokens;
    const bool hides = time.CpuUs(num_rows, kv_tokens) <= window_us;
    if (!hides || num_rows > std::min(max_rows, findings.input.state.limits.max_cohort_rows)) break;
    load.cohort_rows = num_rows;
    load.cohort_kv_tokens = kv_tokens;
    load.num_sampled += cohort.num_rows;
  }
}

Schedule WithHiddenRows(const Findings& findings, int64_t budget, const FillLimits& limits) {
  Schedule schedule = OfBudget(findings, budget);
  FillLimits left = limits;
  if (limits.max_cohort_rows > 0 && !findings.target.rides) {
    AddOwnVisits(findings, limits.max_rows, &schedule);
    left.max_rows -= schedule.load.cohort_rows;
  }
  schedule.fill = FillHiddenRows(findings.room.cpu_rows, findings.input.costs, left, &schedule.load);
  FillTiles(findings, &schedule);
  Price(findings, &schedule);
  return schedule;
}

Schedule WithAllRows(const Findings& findings, int64_t budget, int64_t num_rows) {
  const PlanningInput& input = findings.input;
  const CpuRows& rows = findings.room.cpu_rows;
  Schedule schedule = OfBudget(findings, budget);
  const int64_t max_cohort_rows = input.state.limits.max_cohort_rows;
  if (input.aims.cut == CpuRowsCut::kHalves) {
    schedule.fill = HalveRows(rows, num_rows, input.costs, max_cohort_rows, &schedule.load);
  } else {
    schedule.fill =
        SplitRows(rows, num_rows, input.costs, input.aims.cut == CpuRowsCut::kOneBatch ? 0 : max_cohort_rows,
                  input.tuning.num_cuts, &schedule.load);
  }
  FillTiles(findings, &schedule);
  Price(findings, &schedule);
  return schedule;
}

// Stage 5, NEO 3.2 "Reduce prefilling requests", in tokens (section 6): chunks that swap out their KV are cut
// from the youngest on while T_ca1 <= T_l0 and T_ca0 <= T_l1 + T_ga0 still hold for the same cpu rows.
int64_t ReducePrefills(const Findings& findings, const Schedule& schedule) {
  const PrefillQueue& prompts = findings.admission.prompts;
  const TimeModel time(findings.input.costs);
  int64_t low = std::max<int64_t>(1, prompts.num_tokens_to_last_gpu_chunk());
  int64_t high = schedule.prefill_tokens;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    IterationLoad load = schedule.load;
    prompts.AddTo(middle, findings.input.costs, &load);
    const LayerTimes times = time.TimesOf(load);
    if (times.cpu_cohort_us <= times.linear_main_us &&
        times.cpu_main_us <= times.linear_cohort_us + times.gpu_attention_us) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// What the linear operations take in for next to nothing: they read the weights in any case.
int64_t FlatTokens(const Findings& findings, int64_t most) {
  const LayerCosts& costs = findings.input.costs;
  const int64_t gpu_rows = findings.room.gpu_load.gpu_decode_rows;
  const double flat_us = costs.LinearUs(gpu_rows + 1) * findings.input.tuning.about_flat;
  int64_t flat = 1;
  for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most))); step > 0; step /= 2) {
    if (flat + step <= most && costs.LinearUs(gpu_rows + flat + step) <= flat_us) flat += step;
  }
  return flat;
}

// The most prefill beside the gpu tier's decodes that keeps to the limit of an iteration.
int64_t TokensWithinLimit(const Findings& findings, int64_t most) {
  int64_t allowed = 0;
  for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most))); step > 0; step /= 2) {
    if (allowed + step <= most && findings.target.within_limit(WithoutCpuRows(findings, allowed + step).us))
      allowed += step;
  }
  return allowed;
}

}  // namespace

std::vector<int64_t> PrefillBudgets(const Findings& findings) {
  const PlannerTuning& tuning = findings.input.tuning;
  const int64_t most = findings.admission.prompts.num_tokens();
  const int64_t gpu_rows = findings.room.gpu_load.gpu_decode_rows;
  if (most == 0) return {0};
  std::vector<int64_t> budgets{most};
  const auto add = [&](int64_t budget) { budgets.push_back(std::clamp<int64_t>(budget, 1, most)); };
  // Decodes of the gpu tier would wait for its copies; without any prompts have the GPU to themselves.
  const auto add_without_sliver = [&](int64_t budget) {
    add(budget);
    if (gpu_rows > 0)
      budgets.back() = findings.admission.prompts.WithoutSliver(budgets.back(), findings.input.costs);
  };
  for (const double share : tuning.budget_shares) {
    const int64_t budget = std::llround(findings.admission.wanted_prefill_tokens * share);
    const int64_t whole = findings.input.costs.row_tiles().NearestWhole(gpu_rows + budget) - gpu_rows;
    add_without_sliver(whole > 0 ? whole : budget);
  }
  add_without_sliver(FlatTokens(findings, most));
  if (findings.target.max_iteration_us > 0) {
    const int64_t allowed = TokensWithinLimit(findings, most);
    for (const double share : tuning.limited_budget_shares) {
      const auto budget = static_cast<int64_t>(static_cast<double>(allowed) * share);
      if (budget > 0) add(budget);
    }
    budgets.push_back(0);
  }
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

// Where the oldest cpu decode has to wait, nobody new is admitted: the work that keeps it waiting runs out.
void ProposeHiddenRows(const Findings& findings, int64_t budget, const TakeSchedule& take) {
  const Room& room = findings.room;
  if (room.cpu_rows.empty() && (room.riders.cohorts().empty() || findings.target.rides)) {
    take(WithHiddenRows(findings, budget, {}));
    return;
  }
  const int64_t rows_left = room.rows_left;
  const int64_t begun = std::min(budget, findings.admission.prompts.num_begun_tokens());
  take(WithoutCpuRows(findings, begun));
  const auto fill = [&](int64_t num_tokens, int64_t max_cohort_rows, bool force_oldest, int64_t max_rows) {
    return WithHiddenRows(findings, num_tokens,
                          {.max_rows = std::min(max_rows, rows_left - num_tokens),
                           .max_cohort_rows = max_cohort_rows,
                           .force_oldest = force_oldest,
                           .max_skips = findings.input.tuning.max_skips});
  };
  // One sub-batch hides rows behind T_ga0 alone but reads the weights once.
  for (const int64_t max_cohort_rows : {int64_t{0}, findings.input.state.limits.max_cohort_rows}) {
    Schedule schedule = fill(budget, max_cohort_rows, false, rows_left);
    const bool force_oldest = !room.cpu_rows.empty() && !schedule.fill.has_oldest();
    if (force_oldest) {
      take(fill(begun, max_cohort_rows, false, rows_left));
      schedule = fill(budget, max_cohort_rows, true, rows_left);
      if (!schedule.fill.has_oldest()) continue;
    }
    take(schedule);
    // Fewer rows are the last means to keep to the limit.
    int64_t num_rows = schedule.load.main_cpu_rows + schedule.load.cohort_rows;
    while (num_rows > 1 && !findings.target.within_limit(schedule.us)) {
      num_rows /= 2;
      schedule = fill(budget, max_cohort_rows, force_oldest, num_rows);
      take(schedule);
    }
    if (force_oldest || max_cohort_rows == 0) continue;
    const int64_t others = RowsBesidePrefill(findings, schedule);
    const int64_t reduced =
        findings.input.costs.row_tiles().RoundedUp(others + ReducePrefills(findings, schedule)) - others;
    if (reduced < budget) take(fill(reduced, max_cohort_rows, false, rows_left));
  }
}

void ProposeAllRows(const Findings& findings, int64_t budget, const TakeSchedule& take) {
  // The strawmen prefill what fits, no schedule is weighed against another.
  const bool may_choose =
      findings.input.aims.cut == CpuRowsCut::kLeastTime || findings.target.max_iteration_us > 0;
  if (!may_choose && budget != findings.admission.prompts.num_tokens()) return;
  int64_t num_rows = std::min(findings.room.cpu_rows.size(), findings.room.rows_left - budget);
  Schedule schedule = WithAllRows(findings, budget, num_rows);
  take(schedule);
  while (num_rows > 1 && !findings.target.within_limit(schedule.us)) {
    num_rows /= 2;
    schedule = WithAllRows(findings, budget, num_rows);
    take(schedule);
  }
}

void ProposeRowsAlone(const Findings& findings, const TakeSchedule& take) {
  if (findings.input.offloads_all()) return;
  const ScheduleLimits& limits = findings.input.state.limits;
  int64_t rows_left = findings.room.max_rows;
  Schedule with_own{.load = findings.room.gpu_load};
  for (const Riders::Cohort& cohort : findings.room.riders.cohorts()) {
    const int64_t num_rows = with_own.load.cohort_rows + cohort.num_rows;
    if (num_rows > limits.max_cohort_rows || cohort.num_rows > rows_left) break;
    with_own.load.cohort_rows = num_rows;
    with_own.load.cohort_kv_tokens += cohort.kv_tokens;
    with_own.load.num_sampled += cohort.num_rows;
    rows_left -= cohort.num_rows;
    ++with_own.own_end;
  }
  const CpuRows& rows = findings.room.free_cpu_rows;
  int64_t num_rows = std::min(rows.size(), rows_left);
  if (num_rows == 0 && with_own.own_end > 0) {
    Price(findings, &with_own);
    take(with_own);
  }
  for (bool within = false; num_rows > 0 && !within; num_rows /= 2) {
    for (const int64_t max_cohort_rows : {int64_t{0}, limits.max_cohort_rows - with_own.load.cohort_rows}) {
      Schedule schedule = with_own;
      schedule.alone = true;
      schedule.fill = SplitRows(rows, num_rows, findings.input.costs, max_cohort_rows,
                                findings.input.tuning.num_cuts, &schedule.load);
      Price(findings, &schedule);
      within = within || findings.target.within_limit(schedule.us);
      take(schedule);
    }
  }
}

}  // namespace tandem
