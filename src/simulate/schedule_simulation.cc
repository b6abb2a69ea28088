#include "simulate/schedule_simulation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "perf/time_model.h"

namespace tandem {
namespace {

template <typename... Args>
Error Broken(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

}  // namespace

ScheduleSimulation::ScheduleSimulation(SimulatedBooks books, const ScheduleLimits& limits,
                                       const LayerCosts* costs, const PlannerTuning& tuning)
    : counted_books_(std::move(books)), costs_(costs), cpu_(limits.num_layers), shape_(tuning) {
  state_.limits = limits;
  state_.prompt_tokens_per_output = tuning.first_prompt_tokens_per_output;
}

void ScheduleSimulation::Submit(SequenceId id, int64_t prompt_len, int64_t output_len, bool flexible,
                                uint64_t beginning) {
  lengths_[id] = {.prompt = prompt_len, .final_tokens = prompt_len + output_len};
  state_.waiting.push_back({.id = id,
                            .num_tokens = prompt_len,
                            .num_computed = 0,
                            .flexible = flexible,
                            .final_tokens = prompt_len + output_len,
                            .beginning = beginning});
}

bool ScheduleSimulation::AddRunning(SequenceId id, Tier tier, int64_t num_tokens, int64_t num_computed,
                                    int64_t final_tokens, std::optional<int64_t> prompt_len) {
  const bool decoding = num_computed == num_tokens - 1 && num_computed > 0;
  // A decode has yet to take the block of its newest token; a prompt has all of its own.
  if (!played_books().Reserve(id, tier, books().BlocksFor(decoding ? num_computed : num_tokens)))
    return false;
  lengths_[id] = {.prompt = prompt_len.value_or(num_tokens), .final_tokens = final_tokens};
  state_.running.push_back({.id = id, .num_tokens = num_tokens, .num_computed = num_computed});
  if (prompt_len) CountEnd(lengths_[id]);
  return true;
}

void ScheduleSimulation::CountEnd(const Lengths& lengths) {
  shape_.CountEnd(lengths.prompt, lengths.prompt - lengths.cached, lengths.final_tokens - lengths.prompt);
  state_.SetWorkToCome(shape_);
}

bool ScheduleSimulation::AddInFlight(const InFlightCohort& cohort) {
  for (const RowSpan& row : cohort.rows) {
    const ScheduledSequence* sequence = Running(row.sequence);
    const bool fits = sequence != nullptr && (row.in_transit() || sequence->decoding());
    if (!fits || row.start != sequence->num_computed || next_layer_.contains(row.sequence) ||
        !Reserve(row.sequence, Tier::kCpu).ok())
      return false;
  }
  for (const RowSpan& row : cohort.rows) next_layer_[row.sequence] = cohort.cursor;
  state_.cohorts.push_back(cohort);
  return true;
}

void ScheduleSimulation::JoinAtRandom(double probability, uint32_t seed) {
  join_probability_ = probability;
  random_.seed(seed);
}

ScheduledSequence* ScheduleSimulation::Running(SequenceId id) {
  std::vector<ScheduledSequence>& running = state_.running;
  // Rows of a plan are mostly in this order.
  for (const size_t guess : {last_running_, last_running_ + 1}) {
    if (guess >= running.size() || running[guess].id != id) continue;
    last_running_ = guess;
    return &running[guess];
  }
  const auto found = std::ranges::find(running, id, &ScheduledSequence::id);
  if (found == running.end()) return nullptr;
  last_running_ = static_cast<size_t>(found - running.begin());
  return &*found;
}

// Plans admit from the front.
std::optional<PlannedSequence> ScheduleSimulation::FindWaiting(SequenceId id) const {
  const auto found = state_.waiting.Find(id);
  if (found == state_.waiting.end()) return std::nullopt;
  PlannedSequence planned{found->num_tokens, 0, std::nullopt, found->first_logits()};
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    planned.num_cached[static_cast<size_t>(tier)] =
        books().cached_prefix(id, tier, found->first_logits()).num_blocks * books().block_size();
  }
  return planned;
}

Status ScheduleSimulation::CheckLimits(const IterationPlan& plan) const {
  std::unordered_map<SequenceId, PlannedSequence> known;
  for (const ScheduledSequence& each : state_.running)
    known[each.id] = {each.num_tokens, each.num_computed, books().tier_of(each.id), each.first_logits()};
  const PlanRules rules{.num_layers = state_.limits.num_layers,
                        .max_rows = state_.limits.max_num_batched_tokens,
                        .max_rider_rows = state_.limits.max_rider_rows,
                        .in_flight = &state_.cohorts,
                        .find_sequence = [&](SequenceId id) -> std::optional<PlannedSequence> {
                          const auto found = known.find(id);
                          return found == known.end() ? FindWaiting(id) : found->second;
                        }};
  TANDEM_RETURN_IF_ERROR(ValidatePlan(plan, rules));
  const auto in_transit = [this](const RowSpan& span) {
    return books().BlocksFor(span.end()) * books().block_size();
  };
  int64_t transit_tokens = 0;
  for (const InFlightCohort& cohort : state_.cohorts) {
    const bool dropped = std::ranges::find(plan.dropped, cohort.cohort) != plan.dropped.end();
    if (!cohort.in_transit() || dropped) continue;
    for (const RowSpan& span : cohort.rows) transit_tokens += in_transit(span);
  }
  for (const CohortStep& step : plan.cohorts) {
    if (!step.in_transit() || step.cursor != kEntry) continue;
    for (const RowSpan& span : step.rows) transit_tokens += in_transit(span);
  }
  bool uses_cpu_tier = !plan.cohorts.empty();
  for (const RowSpan& span : plan.main.spans) {
    uses_cpu_tier = uses_cpu_tier || span.tier == Tier::kCpu;
    if (span.in_transit()) transit_tokens += in_transit(span);
  }
  if (transit_tokens > state_.limits.max_transit_tokens)
    return Broken("{} tokens in transit", transit_tokens);
  for (const Move& move : plan.moves) uses_cpu_tier = uses_cpu_tier || move.to == Tier::kCpu;
  if (uses_cpu_tier && !state_.cpu_tier_usable) return Broken("uses a cpu tier that is not usable");
  int64_t cohort_rows = 0;
  for (const CohortStep& step : plan.cohorts) {
    if (!step.rides && !step.in_transit() && !step.visits.empty()) cohort_rows += NumRowsOf(step.rows);
  }
  if (cohort_rows > state_.limits.max_cohort_rows)
    return Broken("{} rows of cohorts with visits of their own", cohort_rows);
  return {};
}

Status ScheduleSimulation::Reserve(SequenceId id, Tier tier) {
  if (played_books().Reserve(id, tier, books().BlocksFor(Running(id)->num_tokens))) return {};
  return Broken("no room for sequence {} in the {} tier", id, TierName(tier));
}

void ScheduleSimulation::Begin(SequenceId id) {
  state_.running.push_back(*state_.waiting.Find(id));
  state_.waiting.Erase(id);
}

// Overtakes those that wait for what somebody computes.
Status ScheduleSimulation::Attach(const AttachedPrefix& prefix) {
  if (!played_books().Attach(prefix))
    return Broken("sequence {} cannot begin with {} tokens", prefix.sequence, prefix.num_tokens);
  Begin(prefix.sequence);
  Running(prefix.sequence)->num_computed = prefix.num_tokens;
  Lengths& lengths = lengths_.at(prefix.sequence);
  if (lengths.ever_computed == 0) lengths.cached = prefix.num_tokens;
  counts_.recomputed -= std::min(prefix.num_tokens, lengths.ever_computed);
  return {};
}

Status ScheduleSimulation::Admit(SequenceId id) {
  if (Running(id) != nullptr) return {};
  for (const ScheduledSequence& waiting : state_.waiting) {
    if (waiting.id == id) break;
    const bool may_be_passed = other_books_ != nullptr;  // it waits for what somebody computes
    if (!may_be_passed && books().BlocksFor(waiting.num_tokens) <= books().total_blocks(Tier::kGpu))
      return Broken("sequence {} overtakes {}", id, waiting.id);
  }
  Begin(id);
  return {};
}

void ScheduleSimulation::Advance(SequenceId id, int64_t num_rows, bool samples) {
  ScheduledSequence& sequence = *Running(id);
  sequence.num_computed += num_rows;
  played_books().Publish(id, sequence.num_computed);
  if (!samples) return;
  ++sequence.num_tokens;
  const Lengths lengths = lengths_.at(id);
  if (sequence.num_tokens < lengths.final_tokens) return;
  CountEnd(lengths);
  played_books().End(id);
  ended_.push_back({.id = id, .num_cached = lengths.cached});
  lengths_.erase(id);
  ++num_finished_;
  newest_finished_ = std::max(newest_finished_, id);
  std::erase_if(state_.running, [id](const ScheduledSequence& each) { return each.id == id; });
}

Status ScheduleSimulation::DropCohorts(const std::vector<CohortId>& dropped) {
  for (const CohortId id : dropped) {
    const auto found = std::find_if(state_.cohorts.begin(), state_.cohorts.end(),
                                    [id](const InFlightCohort& cohort) { return cohort.cohort == id; });
    if (found == state_.cohorts.end()) return Broken("dropped cohort {} is not in flight", id);
    for (const RowSpan& row : found->rows) next_layer_.erase(row.sequence);
    state_.cohorts.erase(found);
    cpu_.Forget(id);
    ++counts_.dropped_cohorts;
  }
  return {};
}

Status ScheduleSimulation::CheckNotInFlight(SequenceId id) const {
  if (next_layer_.contains(id)) return Broken("sequence {} is amid a token in a cohort", id);
  return {};
}

bool ScheduleSimulation::Joins(const CohortStep& step) {
  if (step.cursor == kEntry) return true;
  if (!join_probability_) return cpu_.done(step.cohort);
  return std::bernoulli_distribution(*join_probability_)(random_);
}

Status ScheduleSimulation::Visit(const CohortStep& step, int64_t layer, std::vector<RowSpan>* ended) {
  for (const RowSpan& row : step.rows) {
    const auto found = next_layer_.try_emplace(row.sequence, kEntry).first;
    if (found->second != layer)
      return Broken("sequence {} visits layer {}, its next is {}", row.sequence, layer, found->second);
    ++found->second;
  }
  const auto cohort = std::find_if(state_.cohorts.begin(), state_.cohorts.end(),
                                   [&](const InFlightCohort& each) { return each.cohort == step.cohort; });
  if (layer < state_.limits.num_layers - 1) {
    if (cohort == state_.cohorts.end()) {
      state_.cohorts.push_back({step.cohort, step.rows, layer + 1});
    } else {
      cohort->cursor = layer + 1;
    }
    return {};
  }
  for (const RowSpan& row : step.rows) {
    next_layer_.erase(row.sequence);
    ended->push_back(row);
  }
  if (cohort != state_.cohorts.end()) state_.cohorts.erase(cohort);
  if (step.rides) counts_.rider_tokens += NumRowsOf(step.rows);
  if (step.in_transit()) counts_.transit_tokens += NumRowsOf(step.rows);
  return {};
}

Status ScheduleSimulation::VisitBoundary(const CohortStep& step, int64_t boundary,
                                         std::vector<RowSpan>* ended) {
  const auto visit = std::find_if(step.visits.begin(), step.visits.end(),
                                  [&](const tandem::Visit& each) { return each.boundary == boundary; });
  if (visit == step.visits.end()) return {};
  if (step.rides) {
    if (!Joins(step)) {
      ++counts_.rider_skips;
      return {};
    }
    ++counts_.rider_visits;
  }
  // What is in the plan's way is waited for.
  cpu_.Forget(step.cohort);
  TANDEM_RETURN_IF_ERROR(Visit(step, visit->layer, ended));
  if (step.in_transit()) {
    ++counts_.transit_visits;
    return {};
  }
  // Behind the last visit attention goes on by itself; that between two of them is the iteration's.
  if (*visit != step.visits.back() || visit->layer == state_.limits.num_layers - 1) return {};
  CohortStep next = step;
  next.cursor = visit->layer;
  const RiderWork work = TimeModel(*costs_).RiderWorkOf(next);
  cpu_.Arm(step.cohort, visit->layer + 1, work.cpu_us());
  counts_.cpu_us += work.cpu_us();
  return {};
}

Status ScheduleSimulation::VisitBoundaries(const IterationPlan& plan, double us,
                                           std::vector<RowSpan>* ended) {
  const TimeModel time(*costs_);
  const double waited_us = time.WaitedCpuUs(time.LoadOf(plan));
  const int64_t num_layers = state_.limits.num_layers;
  const double step_us = std::max(0.0, us - waited_us) / static_cast<double>(num_layers + 1);
  for (int64_t boundary = kEntry; boundary < num_layers; ++boundary) {
    for (const CohortStep& step : plan.cohorts) TANDEM_RETURN_IF_ERROR(VisitBoundary(step, boundary, ended));
    cpu_.Work(boundary, step_us);
  }
  return {};
}

// Every row that is amid a token is in its cohort, which is at the row's layer.
Status ScheduleSimulation::CheckRowsInFlight() const {
  size_t num_rows = 0;
  for (const InFlightCohort& cohort : state_.cohorts) {
    num_rows += cohort.rows.size();
    for (const RowSpan& row : cohort.rows) {
      const auto found = next_layer_.find(row.sequence);
      if (found == next_layer_.end() || found->second != cohort.cursor)
        return Broken("sequence {} is not where cohort {} is", row.sequence, cohort.cohort);
    }
  }
  if (num_rows != next_layer_.size())
    return Broken("{} rows in cohorts, {} are amid a token", num_rows, next_layer_.size());
  return {};
}

Status ScheduleSimulation::Apply(const IterationPlan& plan) {
  TANDEM_RETURN_IF_ERROR(CheckLimits(plan));
  const double us_before = counts_.us;
  ended_.clear();
  for (const AttachedPrefix& prefix : plan.attached) TANDEM_RETURN_IF_ERROR(Attach(prefix));
  Count(plan);
  TANDEM_RETURN_IF_ERROR(DropCohorts(plan.dropped));
  for (const Preemption& preemption : plan.preempted) {
    const SequenceId id = preemption.sequence;
    TANDEM_RETURN_IF_ERROR(CheckNotInFlight(id));
    ScheduledSequence waiting = *Running(id);
    Lengths& lengths = lengths_.at(id);
    lengths.ever_computed = std::max(lengths.ever_computed, waiting.num_computed);
    counts_.recomputed += waiting.num_computed;
    waiting.num_computed = 0;
    state_.waiting.push_front(waiting);
    played_books().Release(id);
    std::erase_if(state_.running, [id](const ScheduledSequence& each) { return each.id == id; });
  }
  for (const Move& move : plan.moves) {
    TANDEM_RETURN_IF_ERROR(CheckNotInFlight(move.sequence));
    if (!played_books().MoveTo(move.sequence, move.to))
      return Broken("no room to move sequence {}", move.sequence);
  }
  for (const RowSpan& span : plan.main.spans) {
    TANDEM_RETURN_IF_ERROR(CheckNotInFlight(span.sequence));
    TANDEM_RETURN_IF_ERROR(Admit(span.sequence));
    TANDEM_RETURN_IF_ERROR(Reserve(span.sequence, span.tier));
  }
  if (static_cast<int64_t>(state_.running.size()) > state_.limits.max_num_seqs && !plan.main.empty() &&
      state_.running.back().num_computed == 0)
    return Broken("{} sequences hold blocks", state_.running.size());
  for (const CohortStep& step : plan.cohorts) {
    if (step.visits.empty()) continue;
    for (const RowSpan& row : step.rows) {
      TANDEM_RETURN_IF_ERROR(Admit(row.sequence));
      TANDEM_RETURN_IF_ERROR(Reserve(row.sequence, Tier::kCpu));
    }
  }
  if (plan.copy_down.max_blocks > 0) counts_.copied_down += played_books().CopyUnused(plan.copy_down);
  std::vector<RowSpan> ended;
  TANDEM_RETURN_IF_ERROR(VisitBoundaries(plan, counts_.us - us_before, &ended));
  TANDEM_RETURN_IF_ERROR(CheckRowsInFlight());
  for (const RowSpan& span : plan.main.spans)
    Advance(span.sequence, span.num_tokens, span.end() == Running(span.sequence)->num_tokens);
  for (const RowSpan& span : ended)
    Advance(span.sequence, span.num_tokens, span.end() == Running(span.sequence)->num_tokens);
  return {};
}

void ScheduleSimulation::Count(const IterationPlan& plan) {
  ++counts_.iterations;
  counts_.preemptions += static_cast<int64_t>(plan.preempted.size());
  const TimeModel time(*costs_);
  IterationLoad load = time.LoadOf(plan);
  for (const Move& move : plan.moves) {
    ++(move.to == Tier::kCpu ? counts_.swaps_out : counts_.swaps_in);
    const ScheduledSequence& moved = *Running(move.sequence);
    // Of a prompt that begins now what it begins with.
    load.swapped_tokens +=
        moved.num_computed > 0 && !moved.decoding() ? moved.num_computed : moved.num_tokens;
  }
  std::string shape = plan.moves.empty() ? "" : "moves+";
  for (const RowSpan& span : plan.main.spans) {
    if (span.is_decode()) continue;
    (span.tier == Tier::kCpu ? counts_.prefilled_to_cpu : counts_.prefilled_to_gpu) += span.num_tokens;
  }
  counts_.gpu_rows += load.gpu_decode_rows;
  counts_.main_cpu_rows += load.main_cpu_rows;
  counts_.cohort_rows += load.cohort_rows;
  shape += load.prefill_tokens > 0 ? "p" : "-";
  shape += load.gpu_decode_rows > 0 ? "g" : "-";
  shape += load.main_cpu_rows > 0 ? "c" : "-";
  shape += load.cohort_rows > 0 ? "|c" : "";
  shape += load.rider_rows > 0 ? "~c" : "";
  shape += load.transit_us > 0 ? "|t" : "";
  ++counts_.shapes[shape];
  counts_.us += time.IterationWithCopiesUs(load) * (stretch_ ? stretch_(load) : 1.0);
  last_load_ = load;
  counts_.parts += time.PartsOf(load);
  counts_.cpu_us += time.WaitedCpuUs(load);
}

}  // namespace tandem
