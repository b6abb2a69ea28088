#include "schedule/neo_planner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "schedule/decode_room.h"

namespace tandem {
namespace {

// Iterations over which prompts are dealt out that bring the cpu tier up to its target,
constexpr double kCpuRampIterations = 128;
// the same with asynchronous overlap, where each row more is more,
constexpr double kRidingRampIterations = 2048;
// but at most so many tokens an iteration relative to those that the decodes use up: while the tier fills,
// its prompts are further prefill beside decodes that go on, whose iterations get longer by it;
constexpr double kMostRampShare = 0.5;
// this few are always dealt out: they cost next to nothing.
constexpr double kLeastRampTokens = 32;
// and that fill the gpu tier (GpuRampIterations).
constexpr double kFewestGpuRampIterations = 8;
constexpr double kMostGpuRampIterations = 64;
// What changing back from it may cost at most before cohorts in flight are brought to their end.
constexpr double kWorthStaying = 1.02;
// Of a prompt token, once the cpu tier holds twice its target.
constexpr double kLeastPrefillWorth = 0.25;
constexpr double kAboutFlat = 1.02;
// Waiting requests that are asked for their length when none runs.
constexpr size_t kLookAhead = 16;

}  // namespace

NeoPlanner::NeoPlanner(std::string_view name, CpuUse cpu_use, const ScheduleState& state,
                       const CapacityView& capacity, const LayerCosts& costs)
    : name_(name), cpu_use_(cpu_use), state_(state), costs_(costs), books_(state, capacity) {}

IterationPlan NeoPlanner::Plan() {
  FindLimit();
  FindTarget();
  // Of no use to them, or out of use.
  if (offloads_all() || !state_.cpu_tier_usable) books_.DropAllCohorts();
  MakeRoomForDecodes();
  CollectDecodes();
  CollectRiders();
  AdmitPrefills();
  WeighWork();
  for (const int64_t budget : PrefillBudgets()) {
    if (offloads_all() && !cpu_rows_.empty()) {
      ConsiderAllRows(budget);
    } else {
      ConsiderHiddenRows(budget);
    }
    ConsiderBestOfBudget();
  }
  // Who is begun goes on: rows that ride beside a prompt do little of a token's work in it.
  const bool alone = gpu_rows_.empty() && (prefills_.num_tokens() == 0 || !rides_);
  if (alone) ConsiderRowsAlone();
  ConsiderBestOfBudget();
  return Write();
}

void NeoPlanner::FindLimit() {
  max_iteration_us_ = state_.limits.max_iteration_us;
  const double max_tpot_us = state_.limits.max_tpot_us;
  if (max_tpot_us <= 0 || (max_iteration_us_ > 0 && max_iteration_us_ <= max_tpot_us)) return;
  const auto in_a_hurry = [](const RunningSequence& each) { return each.decoding && !each.flexible; };
  if (std::any_of(books_.sequences().begin(), books_.sequences().end(), in_a_hurry))
    max_iteration_us_ = max_tpot_us;
}

SteadyWork NeoPlanner::WorkOfTheState() const {
  int64_t num_decodes = 0;
  double decode_tokens = 0;
  double all_tokens = 0;
  for (const RunningSequence& each : books_.sequences()) {
    all_tokens += static_cast<double>(each.num_tokens);
    if (!each.decoding) continue;
    ++num_decodes;
    decode_tokens += static_cast<double>(each.num_tokens);
  }
  const size_t num_waiting = std::min(state_.waiting.size(), kLookAhead);
  double waiting_tokens = 0;
  for (size_t i = 0; i < num_waiting; ++i)
    waiting_tokens += static_cast<double>(state_.waiting[i].num_tokens);
  const auto num_known = static_cast<double>(books_.sequences().size() + num_waiting);
  const double mean_tokens = num_known == 0 ? 1 : (all_tokens + waiting_tokens) / num_known;

  SteadyWork work;
  work.prompt_tokens_per_output = state_.prompt_tokens_per_output;
  // Not of the decodes that there are, if it is known otherwise: wherever prompts are held back the long ones
  // remain, would make the machine look slower, and more prompts be held back.
  const double present_context =
      num_decodes == 0 ? mean_tokens : decode_tokens / static_cast<double>(num_decodes);
  work.mean_context = state_.mean_context > 0 ? state_.mean_context : present_context;
  work.mean_prompt = num_waiting == 0 ? mean_tokens : waiting_tokens / static_cast<double>(num_waiting);
  work.max_rows = static_cast<double>(state_.limits.max_num_batched_tokens);
  work.max_iteration_us = max_iteration_us_;
  const auto rows_of = [&](Tier tier) {
    return static_cast<double>(books_.total_blocks(tier) * books_.block_size()) / work.mean_context;
  };
  const auto max_num_seqs = static_cast<double>(state_.limits.max_num_seqs);
  work.gpu_rows = offloads_all() ? 0 : std::min({rows_of(Tier::kGpu), max_num_seqs, work.max_rows});
  work.max_cpu_rows =
      state_.cpu_tier_usable ? std::min(rows_of(Tier::kCpu), max_num_seqs - work.gpu_rows) : 0;
  work.num_cohorts = static_cast<double>(state_.limits.num_riding_cohorts());
  work.present_cpu_rows = static_cast<double>(books_.num_decodes(Tier::kCpu));
  return work;
}

// Step 1, NEO 3.2 "Initialization", and the principles Balancing and Maximizing GPU in numbers.
void NeoPlanner::FindTarget() {
  const SteadyWork work = WorkOfTheState();
  target_ = FindOperatingPoint(work, Overlap::kAsymmetric, costs_);
  const bool wants_to_ride = cpu_use_ == CpuUse::kRiding || cpu_use_ == CpuUse::kBest || admits_for_riding_;
  if (state_.can_ride() && wants_to_ride) {
    riding_ = FindOperatingPoint(work, Overlap::kAsynchronous, costs_);
    if (cpu_use_ == CpuUse::kBest) {
      ChooseOverlap(work);
    } else {
      // A CPU that is of no use to anybody would only make those wait who were swapped out to it.
      rides_ = cpu_use_ == CpuUse::kRiding && riding_.cpu_rows > 0;
      targets_riding_ = true;
      target_ = riding_;
    }
  }
  ValueWhatIsThere(work);
}

double NeoPlanner::RowsBeyondGpuTier(const SteadyWork& work) const {
  const auto num_present =
      static_cast<double>(books_.num_sequences()) + static_cast<double>(state_.waiting.size());
  return std::max(0.0, num_present - work.gpu_rows);
}

// The target's token is cheap because many share the reading of the weights. Where requests come more slowly
// than the machine could serve them there are never so many: by that worth, those that are there would wait
// until there are. By what a token costs with as many as there can be they decode at once.
void NeoPlanner::ValueWhatIsThere(const SteadyWork& work) {
  if (offloads_all()) return;
  const double attainable = RowsBeyondGpuTier(work);
  if (attainable >= static_cast<double>(target_.cpu_rows)) return;
  const Overlap overlap = targets_riding_ ? Overlap::kAsynchronous : Overlap::kAsymmetric;
  const double rate =
      std::max(SteadyRate(work, 0, overlap, costs_), SteadyRate(work, attainable, overlap, costs_));
  if (rate <= 0) return;
  target_.decoded_token_us =
      std::max(target_.decoded_token_us, DecodedTokenUs(work, target_.prefilled_token_us, rate));
}

// Riding wants many requests in the cpu tier; as long as there are few, or if there never will be more, the
// other overlap makes more of them.
void NeoPlanner::ChooseOverlap(const SteadyWork& work) {
  const bool slow = riding_is_slow();
  const auto may_wait = [slow](const auto& each) { return !slow || each.flexible; };
  int64_t num_that_may = slow ? state_.waiting.num_flexible() : static_cast<int64_t>(state_.waiting.size());
  int64_t num_riding = 0;
  for (const RunningSequence& each : books_.sequences()) {
    if (!may_wait(each)) continue;
    ++num_that_may;
    if (each.decodes_in(Tier::kCpu)) ++num_riding;
  }
  if (num_that_may == 0) return;
  const double beyond_gpu_tier = RowsBeyondGpuTier(work);
  const auto rate = [&](Overlap overlap, double num_rows, int64_t target) {
    return SteadyRate(work, std::min(num_rows, static_cast<double>(target)), overlap, costs_);
  };
  // Changing back and forth costs more than a little throughput is worth.
  const double weight = state_.cohorts.empty() ? 1 / kWorthFilling : kWorthStaying;
  const double attainable = std::min(beyond_gpu_tier, static_cast<double>(num_that_may));
  if (weight * rate(Overlap::kAsynchronous, attainable, riding_.cpu_rows) <
      rate(Overlap::kAsymmetric, beyond_gpu_tier, target_.cpu_rows))
    return;
  const auto num_there = static_cast<double>(books_.num_decodes(Tier::kCpu));
  rides_ = weight * rate(Overlap::kAsynchronous, static_cast<double>(num_riding), riding_.cpu_rows) >
           rate(Overlap::kAsymmetric, num_there, target_.cpu_rows);
  targets_riding_ = true;
  target_ = riding_;
}

int64_t NeoPlanner::max_cpu_sequences() const {
  if (targets_riding_)
    return static_cast<int64_t>(std::ceil(kRidingSpare * static_cast<double>(target_.cpu_rows)));
  return 2 * target_.cpu_rows;
}

// More than the CPU can make use of, with some slack against swapping back and forth.
bool NeoPlanner::CpuTierIsOverloaded() const {
  if (offloads_all()) return false;
  return books_.num_sequences(Tier::kCpu) > max_cpu_sequences() + max_cpu_sequences() / 4;
}

bool NeoPlanner::OverloadCanLeave() const {
  return std::any_of(books_.sequences().begin(), books_.sequences().end(), [&](const RunningSequence& each) {
    return each.decodes_in(Tier::kCpu) && each.may_leave() &&
           each.needed_blocks <= books_.total_blocks(Tier::kGpu);
  });
}

// Step 2, NEO 3.2 "Schedule GPU decoding requests".
void NeoPlanner::MakeRoomForDecodes() {
  MakeRoomInCpuTier(state_, &books_);
  MakeRoomInGpuTier(state_, &books_);
  if (offloads_all()) {
    SwapOutAll();
    return;
  }
  // Waiting prompts come before cpu requests that the CPU serves well, not before those that it cannot.
  const bool none_can_enter = state_.waiting.empty() || books_.num_sequences() >= state_.limits.max_num_seqs;
  if (none_can_enter || !state_.cpu_tier_usable) {
    SwapIn(state_, costs_, 0, &books_);
  } else if (CpuTierIsOverloaded()) {
    SwapIn(state_, costs_, max_cpu_sequences(), &books_);
  }
}

// Of a strategy that decodes in the cpu tier alone: what could only be prefilled in the gpu tier leaves it.
void NeoPlanner::SwapOutAll() {
  for (size_t i = 0; i < books_.sequences().size(); ++i) {
    const RunningSequence& each = books_.sequences()[i];
    if (!each.decodes_in(Tier::kGpu) || !each.may_leave()) continue;
    if (each.needed_blocks <= books_.spare_blocks(Tier::kCpu)) books_.MoveTo(i, Tier::kCpu);
  }
}

void NeoPlanner::CollectDecodes() {
  for (const RunningSequence& each : books_.sequences()) {
    const RowSpan row = RowSpan::Decode(each.id, each.num_tokens - 1, each.tier);
    if (each.decodes_in(Tier::kGpu) &&
        static_cast<int64_t>(gpu_rows_.size()) < state_.limits.max_num_batched_tokens) {
      gpu_rows_.push_back(row);
      gpu_load_.gpu_kv_tokens += each.num_tokens;
    } else if (each.decodes_in(Tier::kCpu) && state_.cpu_tier_usable && !each.in_flight) {
      free_cpu_rows_.Add(row);
      if (!rides_ || !may_ride(each)) cpu_rows_.Add(row);
    }
  }
  gpu_load_.gpu_decode_rows = static_cast<int64_t>(gpu_rows_.size());
  gpu_load_.num_sampled = gpu_load_.gpu_decode_rows;
  rows_left_ = state_.limits.max_num_batched_tokens - gpu_load_.gpu_decode_rows;
}

// Those amid a token and, where rows ride, a cohort that enters.
void NeoPlanner::CollectRiders() {
  riders_ = Riders(state_, books_);
  if (rides_) {
    CpuRows free;
    int64_t cpu_kv_tokens = 0;
    for (const RunningSequence& each : books_.sequences()) {
      if (!each.decodes_in(Tier::kCpu) || !may_ride(each)) continue;
      cpu_kv_tokens += each.num_tokens;
      if (!each.in_flight) free.Add(RowSpan::Decode(each.id, each.num_tokens - 1, each.tier));
    }
    riders_.Enter(free, cpu_kv_tokens, state_.limits);
  }
}

// Step 3, NEO 3.2 "Schedule prefilling requests".
void NeoPlanner::AdmitPrefills() {
  AdmissionRules rules;
  // Room in the gpu tier goes to the older requests that overload the cpu tier.
  rules.to_gpu = !CpuTierIsOverloaded() || !OverloadCanLeave();
  rules.cpu_first = offloads_all();
  rules.max_cpu_sequences = offloads_all() ? state_.limits.max_num_seqs : max_cpu_sequences();
  // Cpu decodes keep some rows; all that they need if they are to decode in every iteration.
  const int64_t kept = std::min(cpu_rows_.size(), offloads_all() ? rows_left_ : rows_left_ / 2);
  prefills_ = PrefillQueue(state_, costs_, rules, rows_left_ - kept, &books_);
}

// A few prompt tokens beside decodes cost next to nothing, but while a prompt is dealt out it holds blocks
// that decode nothing: the longer, the larger the tier is in prompts. Where prompts keep the GPU busy anyway
// there is nothing to be had for waiting.
double NeoPlanner::GpuRampIterations() const {
  constexpr double kForRoom = 10;
  constexpr double kForPrefillShare = 160;
  const auto tier_tokens = static_cast<double>(books_.total_blocks(Tier::kGpu) * books_.block_size());
  const double for_room = kForRoom * std::sqrt(tier_tokens / prefills_.mean_prompt());
  const double for_share = kForPrefillShare / std::max(1e-3, state_.prompt_tokens_per_output);
  return std::clamp(std::min(for_room, for_share), kFewestGpuRampIterations, kMostGpuRampIterations);
}

// What step 6 counts. Each request more than the target makes prompt tokens worth less and decoded ones
// worth more: at r prompt tokens for a decoded one both together stay what they are.
void NeoPlanner::WeighWork() {
  const double r = state_.prompt_tokens_per_output;
  const auto target = static_cast<double>(target_.cpu_rows);
  const double below_target = target - static_cast<double>(books_.num_decodes(Tier::kCpu));
  const double scarcity = std::clamp(1 + below_target / (target + 1), 0.0, 1.0);
  prefilled_token_us_ = target_.prefilled_token_us * std::max(kLeastPrefillWorth, scarcity);
  decoded_token_us_ = target_.decoded_token_us + r * (target_.prefilled_token_us - prefilled_token_us_);

  const auto num_visits = static_cast<double>(costs_.num_layers() + 1);
  const double num_decodes = static_cast<double>(gpu_load_.gpu_decode_rows + cpu_rows_.size()) +
                             static_cast<double>(riders_.num_rows()) / num_visits;
  const double ramp_iterations = rides_ ? kRidingRampIterations : kCpuRampIterations;
  const double ramp_tokens = std::min(std::max(0.0, below_target) * prefills_.mean_prompt() / ramp_iterations,
                                      std::max(kLeastRampTokens, kMostRampShare * r * num_decodes));
  wanted_prefill_tokens_ = r * num_decodes * scarcity + ramp_tokens +
                           prefills_.num_gpu_prompts() * prefills_.mean_prompt() / GpuRampIterations();
  // Nothing to deal it out over.
  if (num_decodes == 0) wanted_prefill_tokens_ = static_cast<double>(prefills_.num_tokens());
}

// Amounts of prefill to compare, ascending. Never none while there is any: prompts that are begun must end.
std::vector<int64_t> NeoPlanner::PrefillBudgets() const {
  const int64_t most = prefills_.num_tokens();
  if (most == 0) return {0};
  std::vector<int64_t> budgets{most};
  const auto add = [&](int64_t budget) { budgets.push_back(std::clamp<int64_t>(budget, 1, most)); };
  const auto in_whole_tiles = [&](int64_t budget) {
    const int64_t whole =
        costs_.row_tiles().NearestWhole(gpu_load_.gpu_decode_rows + budget) - gpu_load_.gpu_decode_rows;
    return whole > 0 ? whole : budget;
  };
  for (const double share : {0.25, 0.5, 1.0, 2.0})
    add(in_whole_tiles(std::llround(wanted_prefill_tokens_ * share)));
  // What the linear operations take in for next to nothing: they read the weights in any case.
  const double flat_us = costs_.LinearUs(gpu_load_.gpu_decode_rows + 1) * kAboutFlat;
  int64_t flat = 1;
  const auto largest_step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
  for (int64_t step = largest_step; step > 0; step /= 2) {
    if (flat + step <= most && costs_.LinearUs(gpu_load_.gpu_decode_rows + flat + step) <= flat_us)
      flat += step;
  }
  add(flat);
  if (max_iteration_us_ > 0) {
    int64_t allowed = 0;
    for (int64_t step = largest_step; step > 0; step /= 2) {
      if (allowed + step <= most && within_limit(WithoutCpuRows(allowed + step).us)) allowed += step;
    }
    for (const double share : {1.0, 0.5, 0.25, 0.125}) {
      const auto budget = static_cast<int64_t>(static_cast<double>(allowed) * share);
      if (budget > 0) add(budget);
    }
    budgets.push_back(0);
  }
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

}  // namespace tandem
