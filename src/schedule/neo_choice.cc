// Steps 4 to 6 of NeoPlanner: schedules, and the choice among them.

#include <algorithm>

#include "base/check.h"
#include "perf/time_model.h"
#include "schedule/neo_planner.h"

namespace tandem {
namespace {

// What prompt tokens are worth relative to the operating point: those that the decodes use up, and further
// ones.
constexpr double kWantedPrefillWorth = 1.25;
constexpr double kFurtherPrefillWorth = 0.5;
constexpr double kBeyondRounding = 1 + 1e-9;
// Schedules that all exceed the limit of an iteration are compared by work if they take about the same time.
constexpr double kAboutTheSameTime = 1.05;

}  // namespace

// Of the main sub-batch, with those that ride at a boundary.
int64_t NeoPlanner::RowsBesidePrefill(const Candidate& candidate) const {
  const int64_t num_visits = costs_.num_layers() + 1;
  // Few cohorts, or one, are at few boundaries.
  const bool everywhere = 2 * static_cast<int64_t>(riders_.cohorts().size()) >= num_visits;
  const int64_t num_riders = everywhere ? riders_.usual_rows() : 0;
  return candidate.load.main_rows() - candidate.load.prefill_tokens + num_riders;
}

// Cpu rows of the main sub-batch and riders come on top of a budget that filled its tiles without them: a few
// rows would cost another tile.
void NeoPlanner::FillTiles(Candidate* candidate) const {
  const int64_t budget = candidate->prefill_tokens;
  const int64_t others = RowsBesidePrefill(*candidate);
  // The end of what there is to prefill is not put off.
  const bool is_all = budget >= prefills_.num_tokens() && prefills_.ends_prompts();
  if (budget == 0 || is_all || others == 0) return;
  const int64_t num_cpu_rows = candidate->load.main_cpu_rows + candidate->load.cohort_rows;
  int64_t most = std::min(prefills_.num_tokens(), rows_left_ - num_cpu_rows);
  // A budget that admits nobody goes on doing so.
  if (budget <= prefills_.num_begun_tokens()) most = std::min(most, prefills_.num_begun_tokens());
  if (max_iteration_us_ > 0) most = budget;
  const int64_t whole = costs_.row_tiles().NearestWhole(others + budget) - others;
  if (whole <= 0 || whole == budget || whole > std::max(most, budget)) return;
  IterationLoad with_budget;
  prefills_.AddTo(budget, costs_, &with_budget);
  candidate->prefill_tokens = whole;
  candidate->load.num_sampled -= with_budget.num_sampled;
  candidate->load.swapped_tokens -= with_budget.swapped_tokens;
  prefills_.AddTo(whole, costs_, &candidate->load);
}

NeoPlanner::Candidate NeoPlanner::OfBudget(int64_t budget) const {
  Candidate candidate{.prefill_tokens = budget, .load = gpu_load_};
  prefills_.AddTo(budget, costs_, &candidate.load);
  return candidate;
}

NeoPlanner::Candidate NeoPlanner::WithoutCpuRows(int64_t budget) const {
  Candidate candidate = OfBudget(budget);
  Price(&candidate);
  return candidate;
}

NeoPlanner::Candidate NeoPlanner::WithHiddenRows(int64_t budget, const FillLimits& limits) const {
  Candidate candidate = OfBudget(budget);
  FillLimits left = limits;
  if (limits.max_cohort_rows > 0 && !rides_) {
    AddOwnVisits(limits.max_rows, &candidate);
    left.max_rows -= candidate.load.cohort_rows;
  }
  candidate.fill = FillHiddenRows(cpu_rows_, costs_, left, &candidate.load);
  FillTiles(&candidate);
  Price(&candidate);
  return candidate;
}

NeoPlanner::Candidate NeoPlanner::WithAllRows(int64_t budget, int64_t num_rows) const {
  Candidate candidate = OfBudget(budget);
  const int64_t max_cohort_rows = state_.limits.max_cohort_rows;
  if (cpu_use_ == CpuUse::kHalves) {
    candidate.fill = HalveRows(cpu_rows_, num_rows, max_cohort_rows, &candidate.load);
  } else {
    candidate.fill = SplitRows(cpu_rows_, num_rows, costs_,
                               cpu_use_ == CpuUse::kUnified ? 0 : max_cohort_rows, &candidate.load);
  }
  FillTiles(&candidate);
  Price(&candidate);
  return candidate;
}

// Partial progress prioritization (APEX section 3.4): cohorts amid a token come before rows that begin one,
// furthest first, as far as they hide in the cohort of asymmetric pipelining. At the last layer no attention
// is left to hide: such a cohort rides.
void NeoPlanner::AddOwnVisits(int64_t max_rows, Candidate* candidate) const {
  const std::vector<Riders::Cohort>& cohorts = riders_.cohorts();
  IterationLoad& load = candidate->load;
  const TimeModel time(costs_);
  const double window_us = time.CohortWindowUs(load);
  while (candidate->own_begin < cohorts.size() &&
         cohorts[candidate->own_begin].cursor() + 1 == costs_.num_layers())
    ++candidate->own_begin;
  candidate->own_end = candidate->own_begin;
  for (; candidate->own_end < cohorts.size(); ++candidate->own_end) {
    const Riders::Cohort& cohort = cohorts[candidate->own_end];
    const int64_t num_rows = load.cohort_rows + cohort.num_rows;
    const int64_t kv_tokens = load.cohort_kv_tokens + cohort.kv_tokens;
    const bool hides = time.CpuUs(num_rows, kv_tokens) <= window_us;
    if (!hides || num_rows > std::min(max_rows, state_.limits.max_cohort_rows)) break;
    load.cohort_rows = num_rows;
    load.cohort_kv_tokens = kv_tokens;
    load.num_sampled += cohort.num_rows;
  }
}

// As LoadOf prices the plan: a cohort that does not visit all layers counts with its share.
IterationLoad NeoPlanner::MeanLoadOf(const Candidate& candidate) const {
  IterationLoad load = candidate.load;
  const int64_t num_visits = costs_.num_layers() + 1;
  for (size_t i = candidate.own_begin; i < candidate.own_end; ++i) {
    const Riders::Cohort& cohort = riders_.cohorts()[i];
    const int64_t num_done = cohort.cursor() + 1;
    load.cohort_rows -= cohort.num_rows * num_done / num_visits;
    load.cohort_kv_tokens -= cohort.kv_tokens * num_done / num_visits;
  }
  return load;
}

// Step 4, NEO 3.2 "Schedule CPU decoding requests", and the gpu-only schedule that step 6 compares with.
// Where the oldest cpu decode has to wait, nobody new is admitted: the work that keeps it waiting runs out.
void NeoPlanner::ConsiderHiddenRows(int64_t budget) {
  if (cpu_rows_.empty() && (riders_.cohorts().empty() || rides_)) {
    Consider(WithHiddenRows(budget, {}));
    return;
  }
  const int64_t begun = std::min(budget, prefills_.num_begun_tokens());
  Consider(WithoutCpuRows(begun));
  const auto fill = [&](int64_t num_tokens, int64_t max_cohort_rows, bool force_oldest, int64_t max_rows) {
    return WithHiddenRows(num_tokens, {.max_rows = std::min(max_rows, rows_left_ - num_tokens),
                                       .max_cohort_rows = max_cohort_rows,
                                       .force_oldest = force_oldest});
  };
  // One sub-batch hides rows behind T_ga0 alone but reads the weights once.
  for (const int64_t max_cohort_rows : {int64_t{0}, state_.limits.max_cohort_rows}) {
    Candidate candidate = fill(budget, max_cohort_rows, false, rows_left_);
    const bool force_oldest = !cpu_rows_.empty() && !candidate.fill.has_oldest();
    if (force_oldest) {
      Consider(fill(begun, max_cohort_rows, false, rows_left_));
      candidate = fill(budget, max_cohort_rows, true, rows_left_);
      if (!candidate.fill.has_oldest()) continue;
    }
    Consider(candidate);
    // Fewer rows are the last means to keep to the limit.
    int64_t num_rows = candidate.load.main_cpu_rows + candidate.load.cohort_rows;
    while (num_rows > 1 && !within_limit(candidate.us)) {
      num_rows /= 2;
      candidate = fill(budget, max_cohort_rows, force_oldest, num_rows);
      Consider(candidate);
    }
    if (force_oldest || max_cohort_rows == 0) continue;
    const int64_t others = RowsBesidePrefill(candidate);
    const int64_t reduced = costs_.row_tiles().RoundedUp(others + ReducePrefills(candidate)) - others;
    if (reduced < budget) Consider(fill(reduced, max_cohort_rows, false, rows_left_));
  }
}

// Step 5, NEO 3.2 "Reduce prefilling requests", in tokens (section 6): chunks that swap out their KV are cut
// from the youngest on while T_ca1 <= T_l0 and T_ca0 <= T_l1 + T_ga0 still hold for the same cpu rows.
int64_t NeoPlanner::ReducePrefills(const Candidate& candidate) const {
  int64_t low = std::max<int64_t>(1, prefills_.num_tokens_to_last_gpu_chunk());
  int64_t high = candidate.prefill_tokens;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    IterationLoad load = candidate.load;
    prefills_.AddTo(middle, costs_, &load);
    const LayerTimes times = TimeModel(costs_).TimesOf(load);
    if (times.cpu_cohort_us <= times.linear_main_us &&
        times.cpu_main_us <= times.linear_cohort_us + times.gpu_attention_us) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// Strategies without decodes in the gpu tier: every cpu decode runs in every iteration, hidden or not.
void NeoPlanner::ConsiderAllRows(int64_t budget) {
  // The strawmen prefill what fits, no schedule is weighed against another.
  const bool may_choose = cpu_use_ == CpuUse::kAll || max_iteration_us_ > 0;
  if (!may_choose && budget != prefills_.num_tokens()) return;
  int64_t num_rows = std::min(cpu_rows_.size(), rows_left_ - budget);
  Candidate candidate = WithAllRows(budget, num_rows);
  Consider(candidate);
  while (num_rows > 1 && !within_limit(candidate.us)) {
    num_rows /= 2;
    candidate = WithAllRows(budget, num_rows);
    Consider(candidate);
  }
}

// With neither prefill nor decodes in the gpu tier there is no time of the GPU to hide behind: T_l0 = T_ga0 =
// 0 allows no row at all, and nobody passes by with whom a cohort could ride. All rows run then, in two
// sub-batches that hide one another or in one; cohorts amid a token make their visits.
void NeoPlanner::ConsiderRowsAlone() {
  if (offloads_all()) return;
  int64_t rows_left = state_.limits.max_num_batched_tokens;
  Candidate with_own{.load = gpu_load_};
  for (const Riders::Cohort& cohort : riders_.cohorts()) {
    const int64_t num_rows = with_own.load.cohort_rows + cohort.num_rows;
    if (num_rows > state_.limits.max_cohort_rows || cohort.num_rows > rows_left) break;
    with_own.load.cohort_rows = num_rows;
    with_own.load.cohort_kv_tokens += cohort.kv_tokens;
    with_own.load.num_sampled += cohort.num_rows;
    rows_left -= cohort.num_rows;
    ++with_own.own_end;
  }
  const CpuRows& rows = free_cpu_rows_;
  int64_t num_rows = std::min(rows.size(), rows_left);
  if (num_rows == 0 && with_own.own_end > 0) {
    Price(&with_own);
    Consider(with_own);
  }
  for (bool within = false; num_rows > 0 && !within; num_rows /= 2) {
    for (const int64_t max_cohort_rows :
         {int64_t{0}, state_.limits.max_cohort_rows - with_own.load.cohort_rows}) {
      Candidate candidate = with_own;
      candidate.alone = true;
      candidate.fill = SplitRows(rows, num_rows, costs_, max_cohort_rows, &candidate.load);
      Price(&candidate);
      within = within || within_limit(candidate.us);
      Consider(candidate);
    }
  }
}

// Of the work of a token in tokens: a row that rides makes one visit of L + 1, if the CPU is in time.
double NeoPlanner::TokensOf(const Candidate& candidate) const {
  const IterationLoad& load = candidate.load;
  const auto num_layers = static_cast<double>(costs_.num_layers());
  auto tokens = static_cast<double>(load.decode_rows());
  for (size_t i = candidate.own_begin; i < candidate.own_end; ++i) {
    const Riders::Cohort& cohort = riders_.cohorts()[i];
    const auto done = static_cast<double>(cohort.cursor() + 1) / (num_layers + 1);
    tokens -= done * static_cast<double>(cohort.num_rows);
  }
  if (load.rider_rows == 0) return tokens;
  double in_time = 1;
  // The exchange takes none of the CPU's time.
  if (const double rider_us = load.rider_cpu_us - load.rider_exchange_us; rider_us > 0) {
    const double cpu_us = candidate.us - TimeModel(costs_).WaitedCpuUs(MeanLoadOf(candidate));
    in_time = std::clamp(cpu_us / rider_us, 0.0, 1.0);
  }
  return tokens + in_time * static_cast<double>(load.rider_rows) / (num_layers + 1);
}

// The predicted time, no shorter than the copies of prefilled KV, and the work done in it. Once: adds the
// riders to the load.
void NeoPlanner::Price(Candidate* candidate) const {
  IterationLoad& load = candidate->load;
  TANDEM_CHECK(load.rider_rows == 0, "a schedule with {} riders is priced twice", load.rider_rows);
  candidate->us = 0;
  if (load.main_rows() + load.cohort_rows == 0) return;
  if (load.main_rows() > 0 && !candidate->alone)
    riders_.AddTo(candidate->own_begin, candidate->own_end, costs_, &load);
  candidate->us = TimeModel(costs_).IterationWithCopiesUs(MeanLoadOf(*candidate));
  const auto prefilled = static_cast<double>(load.prefill_tokens);
  const double wanted = std::min(prefilled, wanted_prefill_tokens_);
  const double decode_work = decoded_token_us_ * TokensOf(*candidate);
  candidate->work = prefilled_token_us_ * prefilled + decode_work;
  candidate->worth =
      prefilled_token_us_ * (kWantedPrefillWorth * wanted + kFurtherPrefillWorth * (prefilled - wanted)) +
      decode_work;
}

// Step 6, NEO 3.2 "Make decisions" (Greedy): the most work a microsecond.
void NeoPlanner::Consider(const Candidate& candidate) {
  if (candidate.us == 0) return;
  if (best_of_budget_.us == 0 || IsBetter(candidate, best_of_budget_, &Candidate::work))
    best_of_budget_ = candidate;
}

void NeoPlanner::ConsiderBestOfBudget() {
  if (best_of_budget_.us == 0) return;
  // Of equals the one with more prefill, which comes later: fewer iterations.
  if (best_.us == 0 || !IsBetter(best_, best_of_budget_, &Candidate::worth)) best_ = best_of_budget_;
  best_of_budget_ = {};
}

bool NeoPlanner::IsBetter(const Candidate& a, const Candidate& b, double Candidate::*merit) const {
  if (within_limit(a.us) != within_limit(b.us)) return within_limit(a.us);
  if (!within_limit(a.us)) {
    if (a.us * kAboutTheSameTime < b.us) return true;
    if (b.us * kAboutTheSameTime < a.us) return false;
  }
  return a.*merit * b.us > b.*merit * a.us * kBeyondRounding;
}

IterationPlan NeoPlanner::Write() const {
  IterationPlan plan;
  plan.dropped = books_.dropped();
  plan.preempted = books_.preempted();
  plan.moves = books_.moves();
  plan.main.spans = prefills_.Chunks(best_.prefill_tokens);
  const bool prefills_cpu_tier = std::any_of(plan.main.spans.begin(), plan.main.spans.end(),
                                             [](const RowSpan& chunk) { return chunk.tier == Tier::kCpu; });
  plan.main.spans.insert(plan.main.spans.end(), gpu_rows_.begin(), gpu_rows_.end());
  WriteRows(best_.alone ? free_cpu_rows_ : cpu_rows_, best_.fill, state_.limits.num_layers, riders_.FreshId(),
            &plan);
  riders_.WriteOwn(best_.own_begin, best_.own_end, state_.limits.num_layers, &plan);
  const bool waits_for_cpu = plan.main.attends_on_cpu() || !plan.cohorts.empty();
  if (!best_.alone && !plan.main.empty()) riders_.WriteRiding(best_.own_begin, best_.own_end, &plan);
  plan.strategy = NameOf(waits_for_cpu, !plan.cohorts.empty() || prefills_cpu_tier);
  return plan;
}

// What the iteration is: a strategy that chooses names what it has chosen.
std::string_view NeoPlanner::NameOf(bool waits_for_cpu, bool uses_cpu_tier) const {
  if (cpu_use_ == CpuUse::kAll || cpu_use_ == CpuUse::kHalves || cpu_use_ == CpuUse::kUnified) return name_;
  if (!uses_cpu_tier && !waits_for_cpu) return "gpu-only";
  if (cpu_use_ != CpuUse::kBest) return name_;
  return rides_ && !waits_for_cpu ? "async" : "asymmetric";
}

}  // namespace tandem
