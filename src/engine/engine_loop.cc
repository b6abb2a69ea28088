#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/param_error.h"
#include "base/topology.h"
#include "engine/plan_ahead.h"
#include "plan/plan_printer.h"
#include "plan/plan_validator.h"

namespace tandem {
namespace {

constexpr double kUsPerSecond = 1e6;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

EngineLoop::EngineLoop(const EngineLoopOptions& options, Strategy* strategy, TieredCache* cache,
                       Executor* executor)
    : options_(options), strategy_(strategy), cache_(cache), executor_(executor), seeds_(options.seed) {
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
  inbox_changed_.wait(lock, [&] {
    return !arrived_.empty() || !cancelled_.empty() || cancel_below_ > 0 || stopping_ || !requests_.empty();
  });
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
    for (std::unique_ptr<Request>& request : arrived) {
      state_.waiting.push_back({.id = request->id, .num_tokens = request->num_tokens(), .num_computed = 0});
      const RequestId id = request->id;
      requests_.emplace(id, std::move(request));
    }
    // A plan made ahead does not know of these.
    if (!arrived.empty() || !cancelled.empty()) planned_ahead_.reset();
    arrived.clear();
    if (!cancelled.empty()) DeliverOutputs();
    ApplyCancellations(cancelled);
    cancelled.clear();
    if (!requests_.empty()) RunIteration();
    // Before anyone hears of the results.
    PublishStats();
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
  cache_->Release(id);
  const auto same = [id](const ScheduledSequence& sequence) { return sequence.id == id; };
  if (std::erase_if(state_.running, same) == 0) std::erase_if(state_.waiting, same);
  requests_.erase(id);
  const std::lock_guard lock(mutex_);
  if (--num_in_flight_ > 0) {
    UpdateGauges(&stats_);
    return;
  }
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
  cache_->Release(id);
  Request& request = *requests_.at(id);
  request.num_computed_tokens = 0;
  ++request.num_preemptions;
  ++counters_.preemptions;
  std::erase_if(state_.running, [id](const ScheduledSequence& sequence) { return sequence.id == id; });
  state_.waiting.push_front({.id = id, .num_tokens = request.num_tokens(), .num_computed = 0});
}

void EngineLoop::Admit(SequenceId id) {
  const auto found = std::find_if(state_.waiting.begin(), state_.waiting.end(),
                                  [id](const ScheduledSequence& sequence) { return sequence.id == id; });
  if (found == state_.waiting.end()) return;
  state_.running.push_back(*found);
  state_.waiting.erase(found);
}

void EngineLoop::ApplyPlan(const IterationPlan& plan) {
  const auto find = [this](SequenceId id) -> std::optional<PlannedSequence> {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return std::nullopt;
    return PlannedSequence{found->second->num_tokens(), found->second->num_computed_tokens,
                           cache_->tier_of(id)};
  };
  const Status valid = ValidatePlan(plan, {.num_layers = options_.num_layers,
                                           .max_rows = options_.limits.max_num_batched_tokens,
                                           .find_sequence = find});
  TANDEM_CHECK(valid.ok(), "strategy {} made an invalid plan: {}\n{}", plan.strategy, valid.error().message,
               PrintPlan(plan));
  for (const SequenceId id : plan.preempted) Preempt(id);
  executor_->BeginMoves(plan.moves);
  const auto reserve = [this](SequenceId id, Tier tier) {
    const int64_t num_tokens = requests_.at(id)->num_tokens();
    TANDEM_CHECK(cache_->Reserve(id, tier, num_tokens), "the plan needs more blocks than the {} tier has",
                 TierName(tier));
  };
  for (const PrefillChunk& chunk : plan.main.prefills) {
    Admit(chunk.sequence);
    reserve(chunk.sequence, Tier::kGpu);
  }
  for (const DecodeRow& row : plan.main.gpu_decodes) reserve(row.sequence, Tier::kGpu);
  for (const DecodeRow& row : plan.main.cpu_decodes) reserve(row.sequence, Tier::kCpu);
  for (const CohortStep& step : plan.cohorts) {
    for (const DecodeRow& row : step.rows) reserve(row.sequence, Tier::kCpu);
  }
}

void EngineLoop::CountSchedule(Clock::time_point start) {
  counters_.schedule.AddUs(SecondsSince(start) * kUsPerSecond);
}

IterationPlan EngineLoop::NextPlan() {
  if (planned_ahead_) {
    IterationPlan plan = std::move(*planned_ahead_);
    planned_ahead_.reset();
    if (DropEnded([this](SequenceId id) { return !requests_.contains(id); }, &plan)) return plan;
  }
  const TimelineScope scope(options_.timeline, "engine", "plan");
  const Clock::time_point start = Clock::now();
  IterationPlan plan = strategy_->Plan(state_, *cache_);
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
  if (!ahead.state.running.empty() || !ahead.state.waiting.empty())
    planned_ahead_ = strategy_->Plan(ahead.state, CapacityAhead(*cache_, ahead.ended));
  CountSchedule(start);
}

void EngineLoop::RunIteration() {
  const Clock::time_point start = Clock::now();
  const IterationPlan plan = NextPlan();
  TANDEM_CHECK(!plan.empty(), "strategy {} left {} requests without any work", strategy_->name(),
               requests_.size());
  {
    const TimelineScope scope(options_.timeline, "engine", "start");
    ApplyPlan(plan);
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
  CountDeviceTime(plan, result);
  for (SequenceResult& sequence : result.sequences) ApplyResult(std::move(sequence));
}

void EngineLoop::CountDeviceTime(const IterationPlan& plan, const IterationResult& result) {
  constexpr double kNsPerSecond = 1e9;
  constexpr double kNsPerUs = 1e3;
  const auto span_ns = static_cast<double>(result.device_end_ns - result.device_begin_ns);
  counters_.gpu_busy_seconds += span_ns / kNsPerSecond;
  counters_.iteration.AddUs(span_ns / kNsPerUs);
  if (last_device_end_ns_ > 0) {
    counters_.gpu_gap_seconds +=
        static_cast<double>(result.device_begin_ns - last_device_end_ns_) / kNsPerSecond;
  }
  last_device_end_ns_ = result.device_end_ns;
  ++counters_.strategy_iterations[std::string(plan.strategy)];
}

void EngineLoop::FailCohorts(const IterationPlan& plan, const Error& error) {
  // Nothing ran. Only a cohort needs memory at this point, so its requests end here.
  DeliverOutputs();
  for (const CohortStep& step : plan.cohorts) {
    executor_->DropCohort(step.cohort);
    for (const DecodeRow& row : step.rows) {
      RequestOutput output;
      output.id = row.sequence;
      output.finish_reason = FinishReason::kError;
      output.error = error;
      const OutputCallback callback = std::move(requests_.at(row.sequence)->callback);
      Forget(row.sequence);
      callback(std::move(output));
    }
  }
}

bool EngineLoop::EndsByLength(const Request& request, int64_t num_output) const {
  const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
  return num_output >= request.sampling.max_tokens || prompt_len + num_output >= options_.max_model_len;
}

FinishReason EngineLoop::ReasonToFinish(const Request& request, int32_t token) const {
  const bool ends =
      std::find(request.end_tokens.begin(), request.end_tokens.end(), token) != request.end_tokens.end();
  const auto num_output = static_cast<int64_t>(request.output_tokens.size());
  if (ends && num_output > request.sampling.min_tokens) return FinishReason::kStop;
  return EndsByLength(request, num_output) ? FinishReason::kLength : FinishReason::kNone;
}

void EngineLoop::DeliverOutputs() {
  // A callback may submit or cancel, but that only reaches the inbox.
  for (Output& each : outputs_) {
    if (each.last_callback) {
      each.last_callback(std::move(each.output));
    } else {
      requests_.at(each.output.id)->callback(std::move(each.output));
    }
  }
  outputs_.clear();
}

void EngineLoop::ApplyResult(SequenceResult result) {
  Request& request = *requests_.at(result.sequence);
  ScheduledSequence& scheduled = Running(result.sequence);
  const auto prompt_len = static_cast<int64_t>(request.prompt_tokens.size());
  const int64_t computed_before = request.num_computed_tokens;
  if (request.num_preemptions == 0) {
    counters_.prompt_tokens += static_cast<uint64_t>(
        std::max<int64_t>(0, std::min(result.num_computed, prompt_len) - computed_before));
  }
  request.num_computed_tokens = result.num_computed;
  scheduled.num_computed = result.num_computed;

  RequestOutput output;
  output.id = request.id;
  request.num_reported_prompt_logprobs += static_cast<int64_t>(result.prompt_logprobs.size());
  output.prompt_logprobs = std::move(result.prompt_logprobs);
  if (result.token) {
    const int32_t token = result.token->token;
    request.output_tokens.push_back(token);
    scheduled.num_tokens = request.num_tokens();
    ++counters_.generation_tokens;
    output.tokens.push_back(std::move(*result.token));
    output.finish_reason = ReasonToFinish(request, token);
    if (output.finish_reason == FinishReason::kStop) output.stop_token_id = token;
  }
  if (output.finish_reason != FinishReason::kNone) {
    // Blocks are free before the client hears of the end.
    const RequestId id = output.id;
    outputs_.push_back({std::move(request.callback), std::move(output)});
    Forget(id);
  } else if (!output.tokens.empty() || !output.prompt_logprobs.empty()) {
    outputs_.push_back({nullptr, std::move(output)});
  }
}

void EngineLoop::UpdateGauges(EngineStats* stats) const {
  stats->num_running = static_cast<int64_t>(state_.running.size());
  stats->num_waiting = static_cast<int64_t>(state_.waiting.size());
  stats->gpu_blocks_total = cache_->total_blocks(Tier::kGpu);
  stats->gpu_blocks_free = cache_->free_blocks(Tier::kGpu);
  stats->cpu_blocks_total = cache_->total_blocks(Tier::kCpu);
  stats->cpu_blocks_free = cache_->free_blocks(Tier::kCpu);
  stats->block_size = cache_->block_size();
}

void EngineLoop::PublishLocked() {
  UpdateGauges(&counters_);
  const uint64_t rejected = stats_.rejected_requests;
  stats_ = counters_;
  stats_.rejected_requests = rejected;
}

void EngineLoop::PublishStats() {
  const std::lock_guard lock(mutex_);
  PublishLocked();
}

}  // namespace tandem
