#include "planning/target.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tandem {
namespace {

// The limit of an iteration, tightened where anybody decodes who is in a hurry.
double IterationLimitUs(const PlanningInput& input, const TierBooks& books) {
  const double max_iteration_us = input.state.limits.max_iteration_us;
  const double max_tpot_us = input.state.limits.max_tpot_us;
  if (max_tpot_us <= 0 || (max_iteration_us > 0 && max_iteration_us <= max_tpot_us)) return max_iteration_us;
  const auto in_a_hurry = [](const RunningSequence& each) { return each.decoding && !each.flexible; };
  const bool any = std::any_of(books.sequences().begin(), books.sequences().end(), in_a_hurry);
  return any ? max_tpot_us : max_iteration_us;
}

// What the tiers hold of the work's contexts, as the strategy uses them.
void SetRows(const PlanningInput& input, const TierBooks& books, SteadyWork* work) {
  const auto rows_of = [&](Tier tier) {
    return static_cast<double>(books.total_blocks(tier) * books.block_size()) / work->mean_context;
  };
  const auto max_num_seqs = static_cast<double>(input.state.limits.max_num_seqs);
  work->gpu_rows = input.offloads_all() ? 0 : std::min({rows_of(Tier::kGpu), max_num_seqs, work->max_rows});
  work->max_cpu_rows =
      input.state.cpu_tier_usable ? std::min(rows_of(Tier::kCpu), max_num_seqs - work->gpu_rows) : 0;
}

SteadyWork WorkOfTheState(const PlanningInput& input, const TierBooks& books, double max_iteration_us) {
  const ScheduleState& state = input.state;
  int64_t num_decodes = 0;
  double decode_tokens = 0;
  double shared_tokens = 0;
  double all_tokens = 0;
  for (const RunningSequence& each : books.sequences()) {
    all_tokens += static_cast<double>(each.num_tokens);
    if (!each.decoding) continue;
    ++num_decodes;
    decode_tokens += static_cast<double>(each.num_tokens);
    shared_tokens += static_cast<double>(each.num_shared);
  }
  const size_t num_waiting = std::min(state.waiting.size(), static_cast<size_t>(input.tuning.look_ahead));
  double waiting_tokens = 0;
  for (size_t i = 0; i < num_waiting; ++i) waiting_tokens += static_cast<double>(state.waiting[i].num_tokens);
  const auto num_known = static_cast<double>(books.sequences().size() + num_waiting);
  const double mean_tokens = num_known == 0 ? 1 : (all_tokens + waiting_tokens) / num_known;

  SteadyWork work;
  work.prompt_tokens_per_output = state.prompt_tokens_per_output;
  // Not of the decodes that there are, if it is known otherwise: wherever prompts are held back the long ones
  // remain, would make the machine look slower, and more prompts be held back.
  const double present_context =
      num_decodes == 0 ? mean_tokens : decode_tokens / static_cast<double>(num_decodes);
  work.mean_context = state.mean_context > 0 ? state.mean_context : present_context;
  // Those of the gpu tier would share it in the cpu tier too.
  if (num_decodes > 0)
    work.mean_shared = std::min(shared_tokens / static_cast<double>(num_decodes), work.mean_context);
  work.mean_prompt = num_waiting == 0 ? mean_tokens : waiting_tokens / static_cast<double>(num_waiting);
  work.max_rows = static_cast<double>(state.limits.max_num_batched_tokens);
  work.max_iteration_us = max_iteration_us;
  SetRows(input, books, &work);
  work.num_cohorts = static_cast<double>(state.limits.num_riding_cohorts());
  work.present_cpu_rows = static_cast<double>(books.num_decodes(Tier::kCpu));
  work.num_waiting = static_cast<double>(state.waiting.size());
  work.num_requests = static_cast<double>(books.num_sequences()) + work.num_waiting;
  return work;
}

// Rows of the cpu tier that there can be, of requests that are here: the gpu tier is full first.
double RowsBeyondGpuTier(const SteadyWork& work) {
  return std::max(0.0, work.num_requests - work.gpu_rows);
}

// Of a steady state, with as many of its cpu rows as there can be.
double AttainableRate(const SteadyWork& work, const OperatingPoint& point, Overlap overlap,
                      const LayerCosts& costs) {
  const double cpu_rows = std::min(static_cast<double>(point.cpu_rows), RowsBeyondGpuTier(work));
  return SteadyRate(work, cpu_rows, overlap, costs);
}

bool AnyDecodesAmidAToken(const ScheduleState& state) {
  return std::ranges::any_of(state.cohorts,
                             [](const InFlightCohort& cohort) { return !cohort.in_transit(); });
}

// The fewest rows within some percents of the best rate are none as soon as all together promise less than
// that, and what iterations teach moves promises as far. So who rides goes on then, and nobody joins: nothing
// is emptied or filled for a percent. It is the best that counts: a few riders promise next to nothing.
void HoldRiders(const PlanningInput& input, const SteadyWork& work, Target* target) {
  if (target->riding.cpu_rows > 0 || work.present_cpu_rows == 0 || !AnyDecodesAmidAToken(input.state)) return;
  if (target->riding.best_rate < input.tuning.worth_going_on * target->riding.rate) return;
  target->riding.cpu_rows = std::llround(work.present_cpu_rows);
  target->riding.rate = SteadyRate(work, work.present_cpu_rows, Overlap::kAsynchronous, input.costs);
  target->holds_riders = true;
}

// Times asymmetric's rate, what riding must promise to begin.
double WorthRiding(const PlanningInput& input, const Target& target) {
  const auto num_waiting = static_cast<double>(input.state.waiting.size());
  const double share = std::min(1.0, static_cast<double>(target.riding.cpu_rows) / (1 + num_waiting));
  return input.tuning.worth_riding + input.tuning.price_of_filling * share;
}

// Riding wants many requests in the cpu tier; as long as there are few, or if there never will be more, the
// other overlap makes more of them.
void ChooseOverlap(const PlanningInput& input, const TierBooks& books, const SteadyWork& work,
                   Target* target) {
  const ScheduleState& state = input.state;
  const bool slow = target->riding_is_slow;
  int64_t num_that_may = slow ? state.waiting.num_flexible() : static_cast<int64_t>(state.waiting.size());
  int64_t num_riding = 0;
  for (const RunningSequence& each : books.sequences()) {
    if (!target->may_ride(each)) continue;
    ++num_that_may;
    if (each.decodes_in(Tier::kCpu)) ++num_riding;
  }
  if (num_that_may == 0 || target->riding.cpu_rows == 0) return;
  const double beyond_gpu_tier = RowsBeyondGpuTier(work);
  const auto rate = [&](Overlap overlap, double num_rows, int64_t most) {
    const double some = SteadyRate(work, std::min(num_rows, static_cast<double>(most)), overlap, input.costs);
    // Two sub-batches of few rows are worse than one: asymmetric then leaves the cpu tier alone.
    return overlap == Overlap::kAsynchronous ? some
                                             : std::max(some, SteadyRate(work, 0, overlap, input.costs));
  };
  // Changing back and forth costs more than a little throughput is worth.
  const double to_begin = WorthRiding(input, *target);
  const double weight = 1 / (AnyDecodesAmidAToken(state) ? to_begin - input.tuning.less_to_go_on : to_begin);
  const double attainable = std::min(beyond_gpu_tier, static_cast<double>(num_that_may));
  if (weight * rate(Overlap::kAsynchronous, attainable, target->riding.cpu_rows) <
      rate(Overlap::kAsymmetric, beyond_gpu_tier, target->point.cpu_rows))
    return;
  const auto num_there = static_cast<double>(books.num_decodes(Tier::kCpu));
  target->rides =
      weight * rate(Overlap::kAsynchronous, static_cast<double>(num_riding), target->riding.cpu_rows) >
      rate(Overlap::kAsymmetric, num_there, target->point.cpu_rows);
  target->is_riding = true;
  target->point = target->riding;
}

// The target's token is cheap because many share the reading of the weights. Where requests come more slowly
// than the machine could serve them there are never so many: by that worth, those that are there would wait
// until there are. By what a token costs with as many as there can be they decode at once.
void ValueWhatIsThere(const PlanningInput& input, const SteadyWork& work, Target* target) {
  if (input.offloads_all()) return;
  const double attainable = RowsBeyondGpuTier(work);
  if (attainable >= static_cast<double>(target->point.cpu_rows)) return;
  const Overlap overlap = target->is_riding ? Overlap::kAsynchronous : Overlap::kAsymmetric;
  const double rate =
      std::max(SteadyRate(work, 0, overlap, input.costs), SteadyRate(work, attainable, overlap, input.costs));
  if (rate <= 0) return;
  target->point.decoded_token_us =
      std::max(target->point.decoded_token_us, DecodedTokenUs(work, target->point.prefilled_token_us, rate));
}

// The target may be passed while prompts are dealt out evenly: those that are there then are worth less.
int64_t MaxCpuSequences(const PlanningInput& input, const Target& target) {
  const double times = target.is_riding && target.holds_riders ? 1
                       : target.is_riding                      ? input.tuning.riding_spare
                                                               : input.tuning.overfill;
  return static_cast<int64_t>(std::ceil(times * static_cast<double>(target.point.cpu_rows)));
}

SteadyPromise PromiseOf(const PlanningInput& input, const SteadyWork& full, const Target& target) {
  const Aims& aims = input.aims;
  SteadyPromise promise{.strategy = aims.name};
  if (!input.offloads_all() && target.point.cpu_rows == 0) {
    promise.strategy = "gpu-only";
  } else if (aims.overlap == OverlapChoice::kBetter) {
    promise.strategy = target.is_riding ? "async" : "asymmetric";
  }
  // Steady states are of rows that hide behind one another.
  if (aims.cut == CpuRowsCut::kHalves || aims.cut == CpuRowsCut::kOneBatch) return promise;
  SteadyWork work = full;
  work.gpu_rows = std::min(work.gpu_rows, work.num_requests);
  const Overlap overlap = target.is_riding ? Overlap::kAsynchronous : Overlap::kAsymmetric;
  constexpr double kUsPerS = 1e6;
  promise.tokens_per_s = kUsPerS * AttainableRate(work, target.point, overlap, input.costs);
  return promise;
}

}  // namespace

bool PaysToOffloadAll(const PlanningInput& input, const TierBooks& books) {
  const ScheduleState& state = input.state;
  if (!state.cpu_tier_usable || state.waiting.empty() || state.num_ended < input.tuning.ended_to_know)
    return false;
  const SteadyWork both = WorkOfTheState(input, books, IterationLimitUs(input, books));
  SteadyWork cpu_tier = both;
  SetRows(input.with(kOffloadAll), books, &cpu_tier);
  const auto point_of = [&](const SteadyWork& work, Overlap overlap) {
    return FindOperatingPoint(work, overlap, input.costs, input.tuning);
  };
  const OperatingPoint all = point_of(cpu_tier, Overlap::kAsymmetric);
  if (both.gpu_rows > input.tuning.few_gpu_rows * static_cast<double>(all.cpu_rows)) return false;
  const bool does_so = books.num_decodes(Tier::kGpu) == 0 && books.num_decodes(Tier::kCpu) > 0;
  // A queue that comes and goes is no reason to empty the gpu tier.
  if (!does_so && static_cast<int64_t>(state.waiting.size()) < all.cpu_rows) return false;
  const double asked = input.tuning.worth_offloading_all - (does_so ? input.tuning.less_to_go_on : 0);
  const double rate = AttainableRate(cpu_tier, all, Overlap::kAsymmetric, input.costs);
  const auto beats = [&](Overlap overlap) {
    return rate >= asked * AttainableRate(both, point_of(both, overlap), overlap, input.costs);
  };
  return beats(Overlap::kAsymmetric) && (!state.can_ride() || beats(Overlap::kAsynchronous));
}

Target FindTarget(const PlanningInput& input, const TierBooks& books) {
  Target target;
  target.max_iteration_us = IterationLimitUs(input, books);
  const SteadyWork work = WorkOfTheState(input, books, target.max_iteration_us);
  target.point = FindOperatingPoint(work, Overlap::kAsymmetric, input.costs, input.tuning);
  const Aims& aims = input.aims;
  const double max_tpot_us = input.state.limits.max_tpot_us;
  if (input.state.can_ride() && (aims.overlap != OverlapChoice::kAsymmetric || aims.admits_for_riding)) {
    target.riding = FindOperatingPoint(work, Overlap::kAsynchronous, input.costs, input.tuning);
    target.riding_is_slow =
        max_tpot_us > 0 && static_cast<double>(input.num_visits()) * target.riding.iteration_us > max_tpot_us;
    if (aims.overlap == OverlapChoice::kBetter) {
      HoldRiders(input, work, &target);
      ChooseOverlap(input, books, work, &target);
    } else {
      // A CPU that is of no use to anybody would only make those wait who were swapped out to it.
      target.rides = aims.overlap == OverlapChoice::kAsynchronous && target.riding.cpu_rows > 0;
      target.is_riding = true;
      target.point = target.riding;
    }
  }
  ValueWhatIsThere(input, work, &target);
  target.max_cpu_sequences = MaxCpuSequences(input, target);
  target.promise = PromiseOf(input, work, target);
  return target;
}

}  // namespace tandem
