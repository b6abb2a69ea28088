#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/param_error.h"
#include "base/round_up.h"
#include "base/topology.h"
#include "cpu_attention/attention_kernels.h"
#include "plan/plan_printer.h"

namespace tandem {
namespace {

constexpr double kUsPerSecond = 1e6;

void CheckPlan(const Status& valid, const IterationPlan& plan) {
  TANDEM_CHECK(valid.ok(), "strategy {} made an invalid plan: {}\n{}", plan.strategy, valid.error().message,
               PrintPlan(plan));
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

EngineLoop::EngineLoop(const EngineLoopOptions& options, Device* device, Strategy* strategy, KvBooks* kv,
                       WorkerGroup* workers, CorrectedCosts* costs)
    : options_(options),
      strategy_(strategy),
      kv_(kv),
      workers_(workers),
      hasher_(options.prefix_key ? std::optional(BlockHasher(*options.prefix_key, kv->block_size()))
                                 : std::nullopt),
      inbox_(options.max_num_queued_reqs, options.seed),
      books_(options.limits, options.max_model_len, kv, hasher_ ? &*hasher_ : nullptr),
      kv_events_(kv->block_size(), [this](SequenceId id) -> const Request& { return books_.At(id); }),
      masks_(device, options.vocab_size),
      counters_(kv, &books_.state(), costs,
                workers->cpu_attention() == nullptr ? 0 : workers->cpu_attention()->num_threads()),
      results_(&books_, kv, &counters_, [this](RequestId id) { Forget(id); }),
      clock_(costs) {
  if (options.kv_events != nullptr) kv->Listen(&kv_events_);
  // Of a loop before this one.
  kv->ForgetPrefixes();
  PublishKvEvents();
  inbox_.Publish(counters_.Snapshot());
  thread_ = std::thread([this] { ThreadMain(); });
}

EngineLoop::~EngineLoop() {
  inbox_.Stop();
  thread_.join();
  kv_->Listen(nullptr);
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
  if (spec.pooling) {
    if (prompt_len <= options_.max_model_len) return {};
    return MakeParamError(ErrorCode::kInvalidArgument, "prompt", "the context is {} tokens; the text has {}",
                          options_.max_model_len, prompt_len);
  }
  TANDEM_RETURN_IF_ERROR(spec.sampling.Validate(options_.vocab_size));
  if (spec.grammar != nullptr && !spec.sampling.allowed_token_ids.empty()) {
    return MakeParamError(ErrorCode::kInvalidArgument, "allowed_token_ids",
                          "allowed_token_ids excludes a grammar for the answer");
  }
  if (prompt_len + spec.sampling.max_tokens > options_.max_model_len) {
    return MakeParamError(
        ErrorCode::kInvalidArgument, prompt_len >= options_.max_model_len ? "prompt" : "max_tokens",
        "the context is {} tokens; {} were requested ({} in the prompt, {} to generate)",
        options_.max_model_len, prompt_len + spec.sampling.max_tokens, prompt_len, spec.sampling.max_tokens);
  }
  return {};
}

std::unique_ptr<Request> EngineLoop::MakeRequest(RequestSpec spec, OutputCallback callback) const {
  auto request = std::make_unique<Request>();
  request->prompt_tokens = std::move(spec.prompt_tokens);
  request->sampling = std::move(spec.sampling);
  request->flexible = spec.flexible;
  if (spec.pooling) {
    request->pooling = spec.pooling;
    // It ends with its prompt: nothing that is drawn is taken.
    request->sampling = {.max_tokens = 0, .temperature = 0};
    spec.grammar = nullptr;
  }
  if (hasher_ && !request->pooling) {
    request->prefix_root = hasher_->Root(spec.cache_salt);
    request->cache_salt = std::move(spec.cache_salt);
    request->prompt_hashes = hasher_->FullBlocks(*request->prefix_root, request->prompt_tokens);
    const auto num_blocks = static_cast<size_t>(DivideUp(kPartitionTokens, hasher_->block_size()));
    if (request->prompt_hashes.size() >= num_blocks)
      request->beginning = request->prompt_hashes[num_blocks - 1].halves[0];
  }
  request->callback = std::move(callback);
  request->arrival = Clock::now();
  request->end_tokens = request->sampling.stop_token_ids;
  if (!request->sampling.ignore_eos || spec.grammar != nullptr) {
    request->end_tokens.insert(request->end_tokens.end(), options_.eos_token_ids.begin(),
                               options_.eos_token_ids.end());
  }
  const std::vector<int32_t>& allowed = request->sampling.allowed_token_ids;
  if (!allowed.empty()) request->allowed_tokens = MakeTokenMask(allowed, options_.vocab_size);
  if (spec.grammar != nullptr) request->grammar = std::make_shared<GrammarProgress>(std::move(spec.grammar));
  return request;
}

Result<RequestId> EngineLoop::Submit(RequestSpec spec, OutputCallback callback) {
  TANDEM_RETURN_IF_ERROR(Validate(spec));
  return inbox_.Submit(MakeRequest(std::move(spec), std::move(callback)));
}

Result<RequestId> EngineLoop::SubmitBegun(RequestSpec spec, int64_t num_made_tokens,
                                          OutputCallback callback) {
  TANDEM_RETURN_IF_ERROR(Validate(spec));
  const auto prompt_len = static_cast<int64_t>(spec.prompt_tokens.size());
  if (num_made_tokens < 0 || num_made_tokens > prompt_len) {
    return MakeParamError(ErrorCode::kInvalidArgument, "prompt", "{} made tokens in a prompt of {}",
                          num_made_tokens, prompt_len);
  }
  auto request = MakeRequest(std::move(spec), std::move(callback));
  request->begun = true;
  request->prefix_root.reset();
  request->beginning = 0;
  request->prompt_hashes.clear();
  request->num_made_tokens = num_made_tokens;
  return inbox_.Submit(std::move(request));
}

void EngineLoop::ThreadMain() {
  SetThreadName("engine");
  Inbox::News news;
  // Blocks are to be freed as soon as CPU attention is back, also if nothing else happens.
  while (inbox_.Take(has_work(), books_.any_stalled(), &news)) {
    RecoverCpuTier();
    TakeNews(&news);
    if (failure_) FailForGood(*failure_);
    if (cpu_tier_fails_) FailCpuTier();
    if (has_work()) RunIteration();
    // With nothing to run there is nothing to wait for.
    if (!has_work()) {
      Deliver();
      counters_.Pause();
    }
  }
}

void EngineLoop::TakeNews(Inbox::News* news) {
  // A plan made ahead does not know of these.
  if (!news->arrived.empty() || news->forget_prefixes) planned_ahead_.reset();
  if (news->forget_prefixes) {
    kv_->ForgetPrefixes();
    PublishKvEvents();
    inbox_.Publish(counters_.Snapshot());
  }
  for (std::unique_ptr<Request>& request : news->arrived)
    books_.Add(std::move(request), strategy_->uses_cpu_tier());
  if (!news->cancels()) return;
  Deliver();
  std::vector<RequestId> cancelled = std::move(news->cancelled);
  if (news->cancel_below > 0) {
    const std::vector<RequestId> below = books_.IdsBelow(news->cancel_below);
    cancelled.insert(cancelled.end(), below.begin(), below.end());
  }
  for (const RequestId id : cancelled) {
    if (books_.contains(id)) results_.End(id, FinishReason::kCancelled, std::nullopt);
  }
}

void EngineLoop::PublishKvEvents() {
  if (options_.kv_events == nullptr) return;
  if (KvEvents events = kv_events_.Take(); !events.empty()) options_.kv_events->Publish(std::move(events));
}

void EngineLoop::Deliver() {
  // Whoever has an answer may ask where its beginning lies.
  PublishKvEvents();
  counters_.Count();
  inbox_.Publish(counters_.Snapshot());
  if (options_.live != nullptr) options_.live->Look(&books_, *kv_, counters_.stats());
  results_.Deliver();
}

void EngineLoop::Forget(RequestId id) {
  if (const auto cohort = books_.CohortAloneWith(id)) DropCohort(*cohort);
  books_.Forget(id);
  ended_since_plan_ = true;
  CountReleased();
}

void EngineLoop::CountReleased() {
  for (size_t i = books_.TakeReleased().size(); i > 0; --i) {
    inbox_.EndRequest([this](EngineStats* stats) { counters_.UpdateGauges(stats); },
                      [this]() -> const EngineStats& {
                        counters_.Count();
                        return counters_.Snapshot();
                      });
  }
}

void EngineLoop::CountSchedule(Clock::time_point start) {
  counters_.stats().schedule.AddUs(SecondsSince(start) * kUsPerSecond);
}

IterationPlan EngineLoop::NextPlan(bool* is_checked) {
  *is_checked = false;
  if (planned_ahead_) {
    IterationPlan plan = std::move(*planned_ahead_);
    planned_ahead_.reset();
    *is_checked = ahead_is_checked_ && !ended_since_plan_;
    if (!ended_since_plan_) return plan;
    if (DropEnded([this](SequenceId id) { return !books_.contains(id); }, &plan)) return plan;
  }
  const TimelineScope scope(options_.timeline, "engine", "plan");
  const Clock::time_point start = Clock::now();
  IterationPlan plan = strategy_->Plan(books_.state(), *kv_);
  CountSchedule(start);
  return plan;
}

void EngineLoop::PlanAhead(const IterationPlan& running) {
  const TimelineScope scope(options_.timeline, "engine", "plan ahead");
  const Clock::time_point start = Clock::now();
  state_ahead_ = AdvanceState(books_.state(), running, options_.limits.num_layers, [this](SequenceId id) {
    const Request& request = books_.At(id);
    return books_.EndsByLength(request, static_cast<int64_t>(request.output_tokens.size()) + 1);
  });
  ended_since_plan_ = false;
  const ScheduleState& ahead = state_ahead_.state;
  if (!ahead.running.empty() || !ahead.waiting.empty())
    planned_ahead_ = strategy_->Plan(ahead, CapacityAhead(*kv_, state_ahead_.ended));
  CountSchedule(start);
  // Here the device need not wait for it.
  if (planned_ahead_) CheckPlan(books_.ValidateAhead(*planned_ahead_, ahead), *planned_ahead_);
  ahead_is_checked_ = true;
}

void EngineLoop::CountPreemptions(const IterationPlan& plan) {
  EngineStats& stats = counters_.stats();
  stats.preemptions += plan.preempted.size();
  for (const Preemption& each : plan.preempted) {
    const std::string_view reason = PreemptionReasonName(each.reason);
    LogDebug("request {} is preempted: {}", each.sequence, reason);
    if (stats.preemptions_by_reason[static_cast<size_t>(each.reason)]++ > 0) continue;
    LogWarn(
        "room for KV has run out ({}): request {} loses what was computed for it; from now on "
        "tandem:preemptions_total counts such",
        reason, each.sequence);
  }
}

bool EngineLoop::StartPlan(IterationPlan plan, bool is_checked, Clock::time_point now) {
  const TimelineScope scope(options_.timeline, "engine", "start");
  if (!is_checked) CheckPlan(books_.Validate(plan), plan);
  for (const CohortId id : plan.dropped) {
    DropCohort(id);
    if (!cpu_tier_fails_) continue;
    FailCpuTier();
    return false;
  }
  EngineStats& stats = counters_.stats();
  CountPreemptions(plan);
  int64_t num_swapped_tokens = 0;
  std::vector<BlockMove> moves = books_.Apply(plan, now, &num_swapped_tokens);
  stats.swapped_tokens += static_cast<uint64_t>(num_swapped_tokens);
  const Status started = workers_->Start(books_.InputFor(plan, std::move(moves), &masks_));
  if (!started.ok()) {
    FailCohorts(plan, started.error());
    return false;
  }
  if (running_.empty()) clock_.Begin(plan, now);
  running_.push_back({std::move(plan), now});
  return true;
}

void EngineLoop::WaitForCpuTier() {
  // Whoever waits fits only there. What the iteration before gave is not to wait with them.
  Deliver();
  counters_.Pause();
  constexpr std::chrono::milliseconds kLook{5};
  std::this_thread::sleep_for(kLook);
}

bool EngineLoop::StartNext() {
  const Clock::time_point start = Clock::now();
  bool is_checked = false;
  IterationPlan plan = NextPlan(&is_checked);
  if (plan.empty() && !books_.state().cpu_tier_usable) {
    WaitForCpuTier();
    return false;
  }
  TANDEM_CHECK(!plan.empty(), "strategy {} left {} waiting and {} running requests without any work",
               strategy_->name(), books_.state().waiting.size(), books_.state().running.size());
  return StartPlan(std::move(plan), is_checked, start);
}

void EngineLoop::RunIteration() {
  if (running_.empty() && !StartNext()) return;
  {
    const TimelineScope scope(options_.timeline, "engine", "outputs");
    Deliver();
  }
  PlanAhead(running_.front().plan);
  if (options_.async_scheduling) RunAhead();
  FinishOldest();
}

bool EngineLoop::MayStartAhead() const {
  const ScheduleState& state = books_.state();
  return planned_ahead_ && state.cohorts.empty() && state.cpu_tier_usable && workers_->MayRunAhead() &&
         MayRunAhead(*planned_ahead_, [this](SequenceId id) -> const Request& { return books_.At(id); });
}

void EngineLoop::RunAhead() {
  if (!MayStartAhead()) return;
  const auto wait = std::chrono::duration_cast<std::chrono::microseconds>(clock_.StartAt() - Clock::now());
  if (wait.count() > 0 && workers_->AwaitEnd(wait)) return;
  const Clock::time_point start = Clock::now();
  Inbox::News news;
  inbox_.Take(true, false, &news);
  TakeNews(&news);
  if (ended_since_plan_) planned_ahead_.reset();
  if (!planned_ahead_ && !books_.empty()) PlanAhead(running_.front().plan);
  if (!MayStartAhead()) return;
  IterationPlan plan = std::move(*planned_ahead_);
  planned_ahead_.reset();
  books_.ReleaseEnding(state_ahead_.ended);
  TANDEM_CHECK(StartPlan(std::move(plan), true, start), "an iteration of gpu rows did not start");
  ++counters_.stats().iterations_ahead;
  clock_.CountEnqueueUs(SecondsSince(start) * kUsPerSecond);
}

void EngineLoop::FinishOldest() {
  IterationResult result = workers_->Finish();
  if (result.failure) {
    LogError("{}; nothing can be computed any more", result.failure->message);
    failure_ = std::move(result.failure);
    running_.clear();
    FailForGood(*failure_);
    return;
  }
  const TimelineScope scope(options_.timeline, "engine", "results");
  const Clock::time_point now = Clock::now();
  auto [plan, start] = std::move(running_.front());
  running_.pop_front();
  clock_.End(plan, result.as_graph, now);
  if (!running_.empty()) clock_.Begin(running_.front().plan, now);
  counters_.stats().busy_seconds +=
      std::chrono::duration<double>(now - std::max(start, last_finish_)).count();
  last_finish_ = now;
  ++counters_.stats().iterations;
  TakeProgress(plan, result);
  std::vector<SequenceResult> sequences = std::move(result.sequences);
  const bool stalled = result.stalled;
  counters_.Keep(std::move(plan), std::move(result));
  for (SequenceResult& sequence : sequences) {
    // Cancelled, or ended with the iteration before: what was computed of it since is for nobody.
    if (!books_.contains(sequence.sequence)) continue;
    if (!sequence.failed) results_.Take(std::move(sequence));
  }
  if (stalled) FailCpuTier();
}

void EngineLoop::DropCohort(CohortId id) {
  planned_ahead_.reset();
  if (workers_->DropCohort(id)) {
    books_.DropCohort(id);
  } else {
    // It has forgotten all of them.
    books_.FailCpuTier();
    cpu_tier_fails_ = true;
  }
  CountReleased();
}

void EngineLoop::TakeProgress(const IterationPlan& plan, const IterationResult& result) {
  if (result.stalled) {
    books_.DropAllCohorts();
    planned_ahead_.reset();
    return;
  }
  TANDEM_CHECK(result.cohorts.size() == plan.cohorts.size(), "progress of {} cohorts, the plan has {}",
               result.cohorts.size(), plan.cohorts.size());
  EngineStats& stats = counters_.stats();
  for (size_t i = 0; i < plan.cohorts.size(); ++i) {
    const CohortStep& step = plan.cohorts[i];
    const CohortProgress& progress = result.cohorts[i];
    if (step.rides) ++(progress.num_visits > 0 ? stats.rider_visits : stats.rider_skips);
    if (step.in_transit()) stats.transit_visits += static_cast<uint64_t>(progress.num_visits);
    // FollowCohorts changes the plan then.
    if (step.rides && progress.num_visits == 0) ahead_is_checked_ = false;
    books_.MoveCohort(step, progress.cursor);
  }
  CountReleased();
  if (planned_ahead_ && !FollowCohorts(plan, result.cohorts, options_.limits.num_layers,
                                       options_.limits.max_rider_rows, &*planned_ahead_))
    planned_ahead_.reset();
}

void EngineLoop::FailForGood(const Error& error) {
  planned_ahead_.reset();
  books_.DropAllCohorts();
  CountReleased();
  Deliver();
  for (const RequestId id : books_.IdsBelow(std::numeric_limits<RequestId>::max()))
    results_.End(id, FinishReason::kError, error);
}

void EngineLoop::FailCpuTier() {
  const Error error =
      MakeError(ErrorCode::kUnavailable,
                "CPU attention did not answer in time; the requests that it serves have ended");
  LogError("{}", error.message);
  books_.FailCpuTier();
  CountReleased();
  cpu_tier_fails_ = false;
  planned_ahead_.reset();
  Deliver();
  for (const RequestId id : books_.RunningInCpuTier()) results_.End(id, FinishReason::kError, error);
}

void EngineLoop::RecoverCpuTier() {
  if (books_.state().cpu_tier_usable || !workers_->CpuTierUsable()) return;
  LogInfo("CPU attention is back");
  books_.ReleaseStalled();
  planned_ahead_.reset();
  inbox_.Publish(counters_.Snapshot());
}

void EngineLoop::FailCohorts(const IterationPlan& plan, const Error& error) {
  // Nothing ran. Only a cohort that enters needs memory at this point, so its requests end here; those in
  // flight go on.
  Deliver();
  const std::vector<InFlightCohort>& cohorts = books_.state().cohorts;
  const auto in_flight = [&](const CohortStep& step) {
    return std::any_of(cohorts.begin(), cohorts.end(),
                       [&](const InFlightCohort& cohort) { return cohort.cohort == step.cohort; });
  };
  const auto needs_memory = [&](const auto& step) { return !in_flight(step) && !step.in_transit(); };
  const bool any_enters = std::any_of(plan.cohorts.begin(), plan.cohorts.end(), needs_memory);
  std::vector<CohortStep> failed;
  for (const CohortStep& step : plan.cohorts) {
    if (!any_enters || !in_flight(step)) failed.push_back(step);
  }
  for (const CohortStep& step : failed) {
    DropCohort(step.cohort);
    // A chunk in transit may enter again.
    if (any_enters && step.in_transit()) continue;
    for (const RowSpan& row : step.rows) {
      if (books_.contains(row.sequence)) results_.End(row.sequence, FinishReason::kError, error);
    }
  }
  if (cpu_tier_fails_) FailCpuTier();
}

}  // namespace tandem
