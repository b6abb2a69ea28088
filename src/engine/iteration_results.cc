// What the engine loop makes of an iteration's results: tokens for clients, books, statistics.

#include <algorithm>
#include <string>
#include <utility>

#include "engine/engine_loop.h"

namespace tandem {

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

namespace {

// The load that was: CPU attention of cohorts that skipped their visit is still that of the visit before.
IterationLoad LoadMade(const IterationPlan& plan, const IterationResult& result, const LayerCosts& costs) {
  IterationLoad load = LoadOf(plan, costs);
  load.rider_kv_tokens = 0;
  load.rider_cpu_us = 0;
  load.rider_exchange_us = 0;
  for (size_t i = 0; i < plan.cohorts.size(); ++i) {
    if (!plan.cohorts[i].rides || result.cohorts[i].num_visits == 0) continue;
    const RiderWork work = RiderWorkOf(plan.cohorts[i], costs);
    load.rider_kv_tokens += work.kv_tokens;
    load.rider_cpu_us += work.attention_us + work.exchange_us;
    load.rider_exchange_us += work.exchange_us;
  }
  return load;
}

}  // namespace

void EngineLoop::CountCpuTier(const IterationPlan& plan, const IterationResult& result) {
  constexpr double kUsPerS = 1e6;
  if (costs_ != nullptr && !result.stalled) {
    const IterationLoad load = LoadMade(plan, result, *costs_);
    const auto iteration_us = static_cast<double>(result.device_end_ns - result.device_begin_ns) / 1e3;
    costs_->Observe(load, result.as_graph, iteration_us, static_cast<double>(result.cpu_attention.task_us));
    counters_.predicted_seconds = costs_->prediction().predicted_us / kUsPerS;
    counters_.prediction_error_seconds = costs_->prediction().error_us / kUsPerS;
  }
  if (executor_->cpu_attention() != nullptr) {
    counters_.cpu_attention_busy_seconds += static_cast<double>(result.cpu_attention.busy_us) / kUsPerS /
                                            executor_->cpu_attention()->num_threads();
    counters_.cpu_attention_kv_bytes += static_cast<uint64_t>(result.cpu_attention.kv_bytes);
  }
  for (const PrefillChunk& chunk : plan.main.prefills) {
    if (chunk.tier == Tier::kCpu) counters_.swapped_tokens += static_cast<uint64_t>(chunk.num_tokens);
  }
}

void EngineLoop::CountIteration() {
  if (!uncounted_) return;
  CountDeviceTime(uncounted_->plan, uncounted_->result);
  CountCpuTier(uncounted_->plan, uncounted_->result);
  uncounted_.reset();
}

void EngineLoop::CountEnd(const Request& request, int64_t num_output) {
  const int64_t num_made = request.num_made_tokens;
  shape_.CountEnd(static_cast<int64_t>(request.prompt_tokens.size()) - num_made, num_output + num_made);
  state_.SetWorkToCome(shape_);
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
    output.cpu_tier = books_->tier_of(request.id) == Tier::kCpu;
    if (output.cpu_tier) ++counters_.cpu_tier_tokens;
    output.tokens.push_back(std::move(*result.token));
    output.finish_reason = ReasonToFinish(request, token);
    if (output.finish_reason == FinishReason::kStop) output.stop_token_id = token;
  }
  if (output.finish_reason != FinishReason::kNone) {
    CountEnd(request, static_cast<int64_t>(request.output_tokens.size()));
    // Blocks are free before the client hears of the end.
    const RequestId id = output.id;
    outputs_.push_back({std::move(request.callback), std::move(output)});
    Forget(id);
  } else if (!output.tokens.empty() || !output.prompt_logprobs.empty()) {
    outputs_.push_back({nullptr, std::move(output)});
  }
}

void EngineLoop::DeliverOutputs() {
  CountIteration();
  PublishStats();
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

void EngineLoop::UpdateGauges(EngineStats* stats) {
  stats->num_running = static_cast<int64_t>(state_.running.size());
  stats->num_waiting = static_cast<int64_t>(state_.waiting.size());
  stats->gpu_blocks_total = books_->total_blocks(Tier::kGpu);
  stats->gpu_blocks_free = books_->free_blocks(Tier::kGpu);
  stats->cpu_blocks_total = books_->total_blocks(Tier::kCpu);
  stats->cpu_blocks_free = books_->free_blocks(Tier::kCpu);
  stats->block_size = books_->block_size();
  const int64_t cpu_blocks = stats->cpu_blocks_total - stats->cpu_blocks_free;
  max_cpu_blocks_ = std::max(max_cpu_blocks_, cpu_blocks);
  stats->cpu_kv_tokens = cpu_blocks * stats->block_size;
  stats->max_cpu_kv_tokens = max_cpu_blocks_ * stats->block_size;
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
