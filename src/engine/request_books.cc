#include "engine/request_books.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/plan_ahead.h"
#include "plan/plan_validator.h"

namespace tandem {

RequestBooks::RequestBooks(const ScheduleLimits& limits, int64_t max_model_len, KvBooks* kv,
                           const BlockHasher* hasher)
    : max_model_len_(max_model_len), kv_(kv), hasher_(hasher) {
  state_.limits = limits;
}

Request& RequestBooks::At(RequestId id) {
  const auto found = requests_.find(id);
  TANDEM_CHECK(found != requests_.end(), "request {} is unknown", id);
  return *found->second;
}

std::vector<RequestId> RequestBooks::IdsBelow(RequestId id) const {
  std::vector<RequestId> ids;
  for (const auto& [each, request] : requests_) {
    if (each < id) ids.push_back(each);
  }
  return ids;
}

std::vector<RequestId> RequestBooks::RunningInCpuTier() const {
  std::vector<RequestId> ids;
  for (const ScheduledSequence& sequence : state_.running) {
    if (kv_->tier_of(sequence.id) == Tier::kCpu) ids.push_back(sequence.id);
  }
  return ids;
}

ScheduledSequence RequestBooks::SequenceOf(const Request& request) {
  return {.id = request.id,
          .num_tokens = request.num_tokens(),
          .num_computed = request.num_computed_tokens,
          .flexible = request.flexible,
          .final_tokens = request.final_tokens(),
          .echo_from = EchoFrom(request),
          .beginning = request.beginning};
}

void RequestBooks::Add(std::unique_ptr<Request> request, bool uses_cpu_tier) {
  const ScheduledSequence sequence = SequenceOf(*request);
  kv_->Identify(sequence.id, request->prompt_hashes);
  request->prompt_hashes.clear();
  const auto [entry, is_new] = requests_.emplace(sequence.id, std::move(request));
  if (!BeginAmidWork(entry->second.get(), uses_cpu_tier)) state_.waiting.push_back(sequence);
}

bool RequestBooks::BeginAmidWork(Request* request, bool uses_cpu_tier) {
  const int64_t num_tokens = request->num_tokens();
  if (!request->begun || num_tokens < 2 ||
      static_cast<int64_t>(state_.running.size()) >= state_.limits.max_num_seqs)
    return false;
  const int64_t blocks = kv_->BlocksFor(num_tokens);
  const auto leaves_free = [&](Tier tier, int64_t num_blocks) {
    return kv_->free_blocks(tier) - blocks >= num_blocks;
  };
  // Every sequence there may soon want another block.
  const int64_t num_gpu_sequences =
      std::count_if(state_.running.begin(), state_.running.end(),
                    [this](const ScheduledSequence& each) { return kv_->tier_of(each.id) == Tier::kGpu; });
  constexpr int64_t kFreeShareOfCpuTier = 100;
  Tier tier = Tier::kGpu;
  if (!leaves_free(Tier::kGpu, state_.limits.reserve_blocks + num_gpu_sequences)) {
    tier = Tier::kCpu;
    if (!uses_cpu_tier || !state_.cpu_tier_usable ||
        !leaves_free(Tier::kCpu, kv_->total_blocks(Tier::kCpu) / kFreeShareOfCpuTier + 1))
      return false;
  }
  if (!kv_->Reserve(request->id, tier, num_tokens)) return false;
  request->num_computed_tokens = num_tokens - 1;
  request->first_scheduled = request->arrival;
  state_.running.push_back(SequenceOf(*request));
  // Others like it have ended before, where work is amid.
  CountEnd(*request, request->sampling.max_tokens);
  return true;
}

Status RequestBooks::Validate(const IterationPlan& plan) const {
  return ValidateBy(
      plan,
      [this](SequenceId id) -> std::optional<ScheduledSequence> {
        const auto found = requests_.find(id);
        if (found == requests_.end()) return std::nullopt;
        return SequenceOf(*found->second);
      },
      state_.cohorts);
}

Status RequestBooks::ValidateAhead(const IterationPlan& plan, const ScheduleState& ahead) const {
  std::unordered_map<SequenceId, const ScheduledSequence*> running;
  running.reserve(ahead.running.size());
  for (const ScheduledSequence& sequence : ahead.running) running.emplace(sequence.id, &sequence);
  return ValidateBy(
      plan,
      [&](SequenceId id) -> std::optional<ScheduledSequence> {
        if (const auto found = running.find(id); found != running.end()) return *found->second;
        if (const auto found = ahead.waiting.Find(id); found != ahead.waiting.end()) return *found;
        return std::nullopt;
      },
      ahead.cohorts);
}

Status RequestBooks::ValidateBy(
    const IterationPlan& plan,
    const std::function<std::optional<ScheduledSequence>(SequenceId)>& find_scheduled,
    const std::vector<InFlightCohort>& in_flight) const {
  const auto find = [&](SequenceId id) -> std::optional<PlannedSequence> {
    const std::optional<ScheduledSequence> sequence = find_scheduled(id);
    if (!sequence) return std::nullopt;
    PlannedSequence planned{.num_tokens = sequence->num_tokens,
                            .num_computed = sequence->num_computed,
                            .tier = kv_->tier_of(id),
                            .first_logits = sequence->first_logits()};
    // Only who holds nothing is attached.
    if (plan.attached.empty() || planned.tier) return planned;
    for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
      const CachedPrefix prefix = kv_->cached_prefix(id, tier, sequence->first_logits());
      planned.num_cached[static_cast<size_t>(tier)] = prefix.num_blocks * kv_->block_size();
    }
    return planned;
  };
  return ValidatePlan(plan, {.num_layers = state_.limits.num_layers,
                             .max_rows = state_.limits.max_num_batched_tokens,
                             .max_rider_rows = state_.limits.max_rider_rows,
                             .in_flight = &in_flight,
                             .find_sequence = find});
}

ScheduledSequence& RequestBooks::Running(SequenceId id) {
  const size_t count = state_.running.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (running_hint_ + i) % count;
    if (state_.running[index].id != id) continue;
    running_hint_ = index;
    return state_.running[index];
  }
  CheckFailed(__FILE__, __LINE__, "Running", fmt::format("sequence {} is not running", id));
}

void RequestBooks::Attach(const AttachedPrefix& prefix, Clock::time_point now) {
  kv_->Attach(prefix.sequence, prefix.tier, prefix.num_tokens);
  Admit(prefix.sequence, now);
  Request& request = At(prefix.sequence);
  request.num_computed_tokens = prefix.num_tokens;
  if (request.num_ever_computed == 0) request.num_cached_tokens = prefix.num_tokens;
  Running(prefix.sequence).num_computed = prefix.num_tokens;
}

void RequestBooks::Publish(const Request& request) {
  if (!request.prefix_root) return;
  const int64_t block_size = kv_->block_size();
  std::vector<int32_t> tokens;
  for (int64_t begin = kv_->num_identified(request.id) * block_size;
       begin + block_size <= request.num_computed_tokens; begin += block_size) {
    tokens.clear();
    for (int64_t i = begin; i < begin + block_size; ++i) tokens.push_back(request.TokenAt(i));
    const BlockHash before = kv_->last_hash(request.id).value_or(*request.prefix_root);
    const BlockHash hash = hasher_->Next(before, tokens);
    kv_->Identify(request.id, {&hash, 1});
  }
  kv_->Publish(request.id, request.num_computed_tokens);
}

void RequestBooks::Preempt(SequenceId id) {
  kv_->Release(id);
  Request& request = At(id);
  request.num_computed_tokens = 0;
  // Nothing has come of what it had found: it looks again as if it came first.
  if (request.num_ever_computed == 0) request.num_cached_tokens = 0;
  ++request.num_preemptions;
  std::erase_if(state_.running, [id](const ScheduledSequence& sequence) { return sequence.id == id; });
  state_.waiting.push_front(SequenceOf(request));
}

void RequestBooks::Admit(SequenceId id, Clock::time_point now) {
  const auto found = state_.waiting.Find(id);
  if (found == state_.waiting.end()) return;
  state_.running.push_back(*found);
  state_.waiting.Erase(id);
  Request& request = At(id);
  if (!request.first_scheduled) request.first_scheduled = now;
}

int64_t RequestBooks::TokensToHold(const RowSpan& span) const {
  return std::max(At(span.sequence).num_tokens(), span.end());
}

void RequestBooks::ReleaseEnding(const std::unordered_set<SequenceId>& ending) {
  for (const SequenceId id : ending) kv_->Release(id);
}

void RequestBooks::Reserve(const RowSpan& span, Tier tier) {
  TANDEM_CHECK(kv_->Reserve(span.sequence, tier, TokensToHold(span)),
               "the plan needs more blocks than the {} tier has", TierName(tier));
}

std::vector<BlockMove> RequestBooks::Apply(const IterationPlan& plan, Clock::time_point now,
                                           int64_t* num_swapped_tokens) {
  for (const AttachedPrefix& prefix : plan.attached) Attach(prefix, now);
  for (const Preemption& each : plan.preempted) Preempt(each.sequence);
  std::vector<BlockMove> moves = ApplyMoves(plan.moves, kv_);
  for (const Move& move : plan.moves) *num_swapped_tokens += At(move.sequence).num_computed_tokens;
  for (const RowSpan& span : plan.main.spans) {
    // Who has nothing in the cache may have waited.
    if (span.start == 0) Admit(span.sequence, now);
    Reserve(span, span.tier);
  }
  for (const CohortStep& step : plan.cohorts) {
    // Amid a token it has room for that token.
    if (step.cursor != kEntry) continue;
    for (const RowSpan& row : step.rows) {
      if (row.start == 0) Admit(row.sequence, now);
      Reserve(row, Tier::kCpu);
    }
  }
  if (plan.copy_down.max_blocks > 0) {
    BlockMove copies = kv_->CopyUnused(plan.copy_down);
    if (!copies.source_blocks.empty()) moves.push_back(std::move(copies));
  }
  return moves;
}

IterationInput RequestBooks::InputFor(IterationPlan plan, std::vector<BlockMove> moves,
                                      GrammarMasks* masks) const {
  return MakeIterationInput(
      std::move(plan), std::move(moves), *kv_, state_.limits.num_layers,
      [this](SequenceId id) -> const Request& {
        const auto found = requests_.find(id);
        return found != requests_.end() ? *found->second : *ended_.at(id);
      },
      masks);
}

void RequestBooks::TakeComputed(Request* request, int64_t num_computed) {
  request->num_computed_tokens = num_computed;
  request->num_ever_computed = std::max(request->num_ever_computed, num_computed);
  Publish(*request);
  ScheduledSequence& sequence = Running(request->id);
  sequence.num_computed = num_computed;
  if (sequence.echo_from) sequence.echo_from = EchoFrom(*request);
}

void RequestBooks::TakeToken(Request* request, int32_t token) {
  request->output_tokens.push_back(token);
  Running(request->id).num_tokens = request->num_tokens();
}

bool RequestBooks::EndsByLength(const Request& request, int64_t num_output) const {
  const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
  return num_output >= request.sampling.max_tokens || prompt_len + num_output >= max_model_len_;
}

void RequestBooks::CountEnd(const Request& request, int64_t num_output) {
  const int64_t num_made = request.num_made_tokens;
  const int64_t prompt_len = static_cast<int64_t>(request.prompt_tokens.size()) - num_made;
  shape_.CountEnd(prompt_len, prompt_len - request.num_cached_tokens, num_output + num_made);
  state_.SetWorkToCome(shape_);
}

void RequestBooks::KeepStalled(SequenceId id) {
  kv_->Abandon(id);
  stalled_.push_back(id);
}

void RequestBooks::Forget(RequestId id) {
  const auto same = [id](const ScheduledSequence& sequence) { return sequence.id == id; };
  if (std::erase_if(state_.running, same) == 0) state_.waiting.Erase(id);
  auto request = requests_.extract(id);
  if (CohortOf(id) != nullptr) {
    TANDEM_CHECK(!CohortAloneWith(id), "request {} is forgotten, and its cohort computes for nobody", id);
    // No more masks for it.
    request.mapped()->grammar = nullptr;
    kv_->Abandon(id);
    ended_.insert(std::move(request));
    return;
  }
  released_.push_back(id);
  if (!state_.cpu_tier_usable && kv_->tier_of(id) == Tier::kCpu) {
    KeepStalled(id);
  } else {
    kv_->Forget(id);
  }
}

const InFlightCohort* RequestBooks::CohortOf(SequenceId sequence) const {
  const auto has_row = [sequence](const InFlightCohort& cohort) {
    return std::ranges::any_of(cohort.rows, [&](const RowSpan& row) { return row.sequence == sequence; });
  };
  const auto found = std::ranges::find_if(state_.cohorts, has_row);
  return found == state_.cohorts.end() ? nullptr : &*found;
}

std::optional<CohortId> RequestBooks::CohortAloneWith(SequenceId sequence) const {
  const InFlightCohort* cohort = CohortOf(sequence);
  if (cohort == nullptr) return std::nullopt;
  const bool any_other = std::ranges::any_of(
      cohort->rows, [&](const RowSpan& row) { return row.sequence != sequence && contains(row.sequence); });
  return any_other ? std::nullopt : std::optional(cohort->cohort);
}

void RequestBooks::Release(const std::vector<RowSpan>& rows) {
  for (const RowSpan& row : rows) {
    if (ended_.erase(row.sequence) == 0) continue;
    kv_->Forget(row.sequence);
    released_.push_back(row.sequence);
  }
}

void RequestBooks::MoveCohort(const CohortStep& step, int64_t cursor) {
  tandem::MoveCohort(step, cursor, &state_.cohorts);
  if (cursor == kEntry) Release(step.rows);
}

void RequestBooks::DropCohort(CohortId id) {
  const auto found = std::ranges::find(state_.cohorts, id, &InFlightCohort::cohort);
  if (found == state_.cohorts.end()) return;
  const std::vector<RowSpan> rows = std::move(found->rows);
  state_.cohorts.erase(found);
  Release(rows);
}

void RequestBooks::FailCpuTier() {
  state_.cohorts.clear();
  state_.cpu_tier_usable = false;
  for (const auto& [id, request] : ended_) {
    KeepStalled(id);
    released_.push_back(id);
  }
  ended_.clear();
}

void RequestBooks::ReleaseStalled() {
  for (const SequenceId id : stalled_) kv_->Forget(id);
  stalled_.clear();
  state_.cpu_tier_usable = true;
}

}  // namespace tandem
