#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/param_error.h"
#include "base/topology.h"
#include "plan/plan_printer.h"
#include "plan/plan_validator.h"

namespace tandem {
namespace {

constexpr double kUsPerSecond = 1e6;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

EngineLoop::EngineLoop(const EngineLoopOptions& options, Strategy* strategy, KvBooks* books,
                       Executor* executor, CorrectedCosts* costs)
    : options_(options),
      strategy_(strategy),
      books_(books),
      executor_(executor),
      costs_(costs),
      seeds_(options.seed) {
  state_.limits = options.limits;
  PublishStats();
  thread_ = std::thread([this] { ThreadMain(); });
}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    cancel_below_ = next_id_;
  }
  inbox_changed_.notify_one();
  thread_.join();
}

Status EngineLoop::Validate(const RequestSpec& spec) const {
  const auto prompt_len = static_cast<int64_t>(spec.prompt_tokens.size());
  if (prompt_len == 0) return MakeParamError(ErrorCode::kInvalidArgument, "prompt", "the prompt is empty");
  for (const int32_t token : spec.prompt_tokens) {
    if (token < 0 || token >= options_.vocab_size) {
      return MakeParamError(ErrorCode::kInvalidArgument, "prompt", "token {} is outside the vocabulary of {}",
                            token, options_.vocab_size);
    }
  }
  if (spec.num_made_tokens < 0 || spec.num_made_tokens > prompt_len) {
    return MakeParamError(ErrorCode::kInvalidArgument, "prompt", "{} made tokens in a prompt of {}",
                          spec.num_made_tokens, prompt_len);
  }
  TANDEM_RETURN_IF_ERROR(spec.sampling.Validate(options_.vocab_size));
  if (prompt_len + spec.sampling.max_tokens > options_.max_model_len) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, prompt_len >= options_.max_model_len ? "prompt" : "max_tokens",
        "the context is {} tokens; {} were requested ({} in the prompt, {} to generate)",
        options_.max_model_len, prompt_len + spec.sampling.max_tokens, prompt_len, spec.sampling.max_tokens);
  }
  return {};
}

Result<RequestId> EngineLoop::Submit(RequestSpec spec, OutputCallback callback) {
  TANDEM_RETURN_IF_ERROR(Validate(spec));
  auto request = std::make_unique<Request>();
  request->prompt_tokens = std::move(spec.prompt_tokens);
  request->sampling = std::move(spec.sampling);
  request->flexible = spec.flexible;
  request->assume_computed = spec.assume_computed;
  request->num_made_tokens = spec.num_made_tokens;
  request->callback = std::move(callback);
  request->arrival = Clock::now();
  request->end_tokens = request->sampling.stop_token_ids;
  if (!request->sampling.ignore_eos) {
    request->end_tokens.insert(request->end_tokens.end(), options_.eos_token_ids.begin(),
                               options_.eos_token_ids.end());
  }
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_) return MakeError(ErrorCode::kUnavailable, "the engine is shutting down");
    const int64_t num_queued = stats_.num_waiting + static_cast<int64_t>(arrived_.size());
    if (num_queued >= options_.max_num_queued_reqs) {
      ++stats_.rejected_requests;
      return MakeError(ErrorCode::kResourceExhausted, "the queue is full: {} requests are waiting",
                       num_queued);
    }
    id = next_id_++;
    request->id = id;
    request->seed = request->sampling.seed ? *request->sampling.seed : seeds_();
    ++num_in_flight_;
    arrived_.push_back(std::move(request));
  }
  inbox_changed_.notify_one();
  return id;
}

void EngineLoop::Cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
  }
  inbox_changed_.notify_one();
}

void EngineLoop::Drain() {
  std::unique_lock lock(mutex_);
  draining_ = true;
  idle_.wait(lock, [&] { return num_in_flight_ == 0; });
}

void EngineLoop::CancelAll() {
  std::unique_lock lock(mutex_);
  // A request that comes while this waits, or right after, is none of those.
  cancel_below_ = next_id_;
  inbox_changed_.notify_one();
  idle_.wait(lock, [&] { return num_in_flight_ == 0; });
}

EngineStats EngineLoop::Stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.num_waiting += static_cast<int64_t>(arrived_.size());
  return stats;
}

bool EngineLoop::TakeInbox(std::vector<std::unique_ptr<Request>>* arrived,
                           std::vector<RequestId>* cancelled) {
  std::unique_lock lock(mutex_);
  const auto has_news = [&] {
    return !arrived_.empty() || !cancelled_.empty() || cancel_below_ > 0 || stopping_ || !requests_.empty();
  };
  if (stalled_.empty()) {
    inbox_changed_.wait(lock, has_news);
  } else {
    // Blocks to be freed as soon as CPU attention is back, also if nothing else happens.
    constexpr std::chrono::milliseconds kLook{20};
    inbox_changed_.wait_for(lock, kLook, has_news);
  }
  arrived->swap(arrived_);
  // Visible as waiting, and counted against the queue's limit, until the next snapshot.
  stats_.num_waiting += static_cast<int64_t>(arrived->size());
  cancelled->swap(cancelled_);
  if (cancel_below_ > 0) {
    const auto add = [&](RequestId id) {
      if (id < cancel_below_) cancelled->push_back(id);
    };
    for (const auto& request : *arrived) add(request->id);
    for (const auto& [id, request] : requests_) add(id);
    cancel_below_ = 0;
  }
  return !(stopping_ && requests_.empty() && arrived->empty());
}

void EngineLoop::ThreadMain() {
  SetThreadName("engine");
  std::vector<std::unique_ptr<Request>> arrived;
  std::vector<RequestId> cancelled;
  while (TakeInbox(&arrived, &cancelled)) {
    RecoverCpuTier();
    for (std::unique_ptr<Request>& request : arrived) Enqueue(std::move(request));
    // A plan made ahead does not know of these.
    if (!arrived.empty() || !cancelled.empty()) planned_ahead_.reset();
    arrived.clear();
    if (!cancelled.empty()) DeliverOutputs();
    ApplyCancellations(cancelled);
    cancelled.clear();
    if (cpu_tier_fails_) FailCpuTier();
    if (!requests_.empty()) RunIteration();
    // With nothing to run there is nothing to wait for.
    if (requests_.empty()) {
      DeliverOutputs();
      last_device_end_ns_ = 0;
    }
  }
}

void EngineLoop::ApplyCancellations(const std::vector<RequestId>& cancelled) {
  for (const RequestId id : cancelled) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    RequestOutput output;
    output.id = id;
    output.finish_reason = FinishReason::kCancelled;
    const OutputCallback callback = std::move(found->second->callback);
    Forget(id);
    callback(std::move(output));
  }
}

void EngineLoop::Forget(RequestId id) {
  // Before its blocks are anyone else's.
  DropCohortOf(id);
  if (!state_.cpu_tier_usable && books_->tier_of(id) == Tier::kCpu) {
    stalled_.push_back(id);
  } else {
    books_->Release(id);
  }
  const auto same = [id](const ScheduledSequence& sequence) { return sequence.id == id; };
  if (std::erase_if(state_.running, same) == 0) std::erase_if(state_.waiting, same);
  requests_.erase(id);
  ended_since_plan_ = true;
  const std::lock_guard lock(mutex_);
  if (--num_in_flight_ > 0) {
    UpdateGauges(&stats_);
    return;
  }
  CountIteration();
  // Whoever waits for an idle engine finds its blocks free and everything counted.
  PublishLocked();
  idle_.notify_all();
}

ScheduledSequence& EngineLoop::Running(SequenceId id) {
  const size_t count = state_.running.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (running_hint_ + i) % count;
    if (state_.running[index].id != id) continue;
    running_hint_ = index;
    return state_.running[index];
  }
  CheckFailed(__FILE__, __LINE__, "Running", fmt::format("sequence {} is not running", id));
}

void EngineLoop::Preempt(SequenceId id) {
  books_->Release(id);
  Request& request = *requests_.at(id);
  request.num_computed_tokens = 0;
  ++request.num_preemptions;
  ++counters_.preemptions;
  std::erase_if(state_.running, [id](const ScheduledSequence& sequence) { return sequence.id == id; });
  state_.waiting.push_front(SequenceOf(request));
}

void EngineLoop::Admit(SequenceId id) {
  const auto found = std::find_if(state_.waiting.begin(), state_.waiting.end(),
                                  [id](const ScheduledSequence& sequence) { return sequence.id == id; });
  if (found == state_.waiting.end()) return;
  state_.running.push_back(*found);
  state_.waiting.erase(found);
}

bool EngineLoop::ApplyPlan(const IterationPlan& plan) {
  const auto find = [this](SequenceId id) -> std::optional<PlannedSequence> {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return std::nullopt;
    return PlannedSequence{found->second->num_tokens(), found->second->num_computed_tokens,
                           books_->tier_of(id)};
  };
  const Status valid = ValidatePlan(plan, {.num_layers = options_.num_layers,
                                           .max_rows = options_.limits.max_num_batched_tokens,
                                           .max_rider_rows = options_.limits.max_rider_rows,
                                           .in_flight = &state_.cohorts,
                                           .find_sequence = find});
  TANDEM_CHECK(valid.ok(), "strategy {} made an invalid plan: {}\n{}", plan.strategy, valid.error().message,
               PrintPlan(plan));
  for (const CohortId id : plan.dropped) {
    DropCohort(id);
    if (!cpu_tier_fails_) continue;
    FailCpuTier();
    return false;
  }
  for (const SequenceId id : plan.preempted) Preempt(id);
  executor_->BeginMoves(ApplyMoves(plan.moves, books_));
  for (const Move& move : plan.moves)
    counters_.swapped_tokens += static_cast<uint64_t>(requests_.at(move.sequence)->num_computed_tokens);
  const auto reserve = [this](SequenceId id, Tier tier) {
    const int64_t num_tokens = requests_.at(id)->num_tokens();
    TANDEM_CHECK(books_->Reserve(id, tier, num_tokens), "the plan needs more blocks than the {} tier has",
                 TierName(tier));
  };
  for (const PrefillChunk& chunk : plan.main.prefills) {
    Admit(chunk.sequence);
    reserve(chunk.sequence, chunk.tier);
  }
  for (const DecodeRow& row : plan.main.gpu_decodes) reserve(row.sequence, Tier::kGpu);
  for (const DecodeRow& row : plan.main.cpu_decodes) reserve(row.sequence, Tier::kCpu);
  for (const CohortStep& step : plan.cohorts) {
    // Amid a token it has room for that token.
    if (step.cursor != kEntry) continue;
    for (const DecodeRow& row : step.rows) reserve(row.sequence, Tier::kCpu);
  }
  return true;
}

void EngineLoop::CountSchedule(Clock::time_point start) {
  counters_.schedule.AddUs(SecondsSince(start) * kUsPerSecond);
}

IterationPlan EngineLoop::NextPlan() {
  if (planned_ahead_) {
    IterationPlan plan = std::move(*planned_ahead_);
    planned_ahead_.reset();
    if (!ended_since_plan_) return plan;
    if (DropEnded([this](SequenceId id) { return !requests_.contains(id); }, &plan)) return plan;
  }
  const TimelineScope scope(options_.timeline, "engine", "plan");
  const Clock::time_point start = Clock::now();
  IterationPlan plan = strategy_->Plan(state_, *books_);
  CountSchedule(start);
  return plan;
}

void EngineLoop::PlanAhead(const IterationPlan& running) {
  const TimelineScope scope(options_.timeline, "engine", "plan ahead");
  const Clock::time_point start = Clock::now();
  const StateAhead ahead = AdvanceState(state_, running, options_.num_layers, [this](SequenceId id) {
    const Request& request = *requests_.at(id);
    return EndsByLength(request, static_cast<int64_t>(request.output_tokens.size()) + 1);
  });
  ended_since_plan_ = false;
  if (!ahead.state.running.empty() || !ahead.state.waiting.empty())
    planned_ahead_ = strategy_->Plan(ahead.state, CapacityAhead(*books_, ahead.ended));
  CountSchedule(start);
}

void EngineLoop::RunIteration() {
  const Clock::time_point start = Clock::now();
  IterationPlan plan = NextPlan();
  if (plan.empty() && !state_.cpu_tier_usable) {
    // Whoever waits fits only there. What the iteration before gave is not to wait with them.
    DeliverOutputs();
    last_device_end_ns_ = 0;
    constexpr std::chrono::milliseconds kLook{5};
    std::this_thread::sleep_for(kLook);
    return;
  }
  TANDEM_CHECK(!plan.empty(), "strategy {} left {} requests without any work", strategy_->name(),
               requests_.size());
  {
    const TimelineScope scope(options_.timeline, "engine", "start");
    if (!ApplyPlan(plan)) return;
    const Status started =
        executor_->Start(plan, [this](SequenceId id) -> const Request& { return *requests_.at(id); });
    if (!started.ok()) {
      FailCohorts(plan, started.error());
      return;
    }
  }
  {
    const TimelineScope scope(options_.timeline, "engine", "outputs");
    DeliverOutputs();
  }
  PlanAhead(plan);
  IterationResult result = executor_->Finish();
  const TimelineScope scope(options_.timeline, "engine", "results");
  counters_.busy_seconds += SecondsSince(start);
  ++counters_.iterations;
  TakeProgress(plan, result);
  std::vector<SequenceResult> sequences = std::move(result.sequences);
  const bool stalled = result.stalled;
  uncounted_ = Ran{std::move(plan), std::move(result)};
  for (SequenceResult& sequence : sequences) {
    if (!sequence.failed) ApplyResult(std::move(sequence));
  }
  if (stalled) FailCpuTier();
}

}  // namespace tandem
