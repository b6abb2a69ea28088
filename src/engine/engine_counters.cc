#include "engine/engine_counters.h"

#include <algorithm>
#include <string>
#include <utility>

#include "perf/time_model.h"

namespace tandem {
namespace {

constexpr double kUsPerS = 1e6;

// The load that was: CPU attention of cohorts that skipped their visit is still that of the visit before.
IterationLoad LoadMade(const IterationPlan& plan, const IterationResult& result, const LayerCosts& costs) {
  const TimeModel time(costs);
  IterationLoad load = time.LoadOf(plan);
  load.rider_kv_tokens = 0;
  load.rider_cpu_us = 0;
  load.rider_exchange_us = 0;
  for (size_t i = 0; i < plan.cohorts.size(); ++i) {
    if (!plan.cohorts[i].rides || result.cohorts[i].num_visits == 0) continue;
    const RiderWork work = time.RiderWorkOf(plan.cohorts[i]);
    load.rider_kv_tokens += work.kv_tokens;
    load.rider_cpu_us += work.cpu_us();
    load.rider_exchange_us += work.exchange_us;
  }
  return load;
}

}  // namespace

void EngineCounters::Keep(IterationPlan plan, IterationResult result) {
  uncounted_ = Ran{std::move(plan), std::move(result)};
}

void EngineCounters::Count() {
  if (!uncounted_) return;
  const uint64_t num_drawn = CountTokens();
  CountDeviceTime(*uncounted_);
  CountCpuTier(*uncounted_);
  CountStrategy(*uncounted_, num_drawn);
  uncounted_.reset();
}

void EngineCounters::CountStrategy(const Ran& ran, uint64_t num_drawn) {
  constexpr double kNsPerSecond = 1e9;
  const auto span_ns = static_cast<double>(ran.result.device_end_ns - ran.result.device_begin_ns);
  ledger_.Count(ran.plan.promise, span_ns / kNsPerSecond, num_drawn);
  stats_.current_strategy = ledger_.current();
  stats_.strategies = ledger_.accounts();
  if (costs_ == nullptr) return;
  for (int kind = 0; kind < kNumIterationKinds; ++kind)
    stats_.iteration_factors[static_cast<size_t>(kind)] =
        costs_->kind_factor(static_cast<IterationKind>(kind));
  stats_.cpu_attention_factor = costs_->cpu_factor();
  stats_.gpu_beside_cpu_attention_factor = costs_->gpu_factor(IterationMode::kHybrid);
  stats_.hand_over_us = costs_->HandOverUs();
}

uint64_t EngineCounters::CountTokens() {
  const uint64_t num_tokens = stats_.prompt_tokens + stats_.generation_tokens;
  stats_.iteration_tokens.Add(num_tokens - num_tokens_counted_);
  num_tokens_counted_ = num_tokens;
  const uint64_t num_drawn = stats_.generation_tokens - num_drawn_counted_;
  num_drawn_counted_ = stats_.generation_tokens;
  return num_drawn;
}

void EngineCounters::CountDeviceTime(const Ran& ran) {
  constexpr double kNsPerSecond = 1e9;
  constexpr double kNsPerUs = 1e3;
  const IterationResult& result = ran.result;
  const auto span_ns = static_cast<double>(result.device_end_ns - result.device_begin_ns);
  stats_.gpu_busy_seconds += span_ns / kNsPerSecond;
  stats_.iteration.AddUs(span_ns / kNsPerUs);
  if (last_device_end_ns_ > 0) {
    stats_.gpu_gap_seconds +=
        static_cast<double>(result.device_begin_ns - last_device_end_ns_) / kNsPerSecond;
  }
  last_device_end_ns_ = result.device_end_ns;
  ++stats_.strategy_iterations[std::string(ran.plan.strategy)];
}

void EngineCounters::CountCpuTier(const Ran& ran) {
  const IterationResult& result = ran.result;
  if (costs_ != nullptr && !result.stalled) {
    const IterationLoad load = LoadMade(ran.plan, result, *costs_);
    const auto iteration_us = static_cast<double>(result.device_end_ns - result.device_begin_ns) / 1e3;
    costs_->Observe(load, result.as_graph, iteration_us, static_cast<double>(result.cpu_attention.task_us));
    stats_.predicted_seconds = costs_->prediction().predicted_us / kUsPerS;
    stats_.prediction_error_seconds = costs_->prediction().error_us / kUsPerS;
  }
  if (num_attention_threads_ > 0) {
    stats_.cpu_attention_busy_seconds += static_cast<double>(result.cpu_attention.busy_us) / kUsPerS /
                                         static_cast<double>(num_attention_threads_);
    stats_.cpu_attention_kv_bytes += static_cast<uint64_t>(result.cpu_attention.kv_bytes);
    stats_.cpu_attention_attended_kv_bytes += static_cast<uint64_t>(result.cpu_attention.attended_kv_bytes);
  }
  for (const RowSpan& span : ran.plan.main.spans) {
    if (span.in_transit()) stats_.swapped_tokens += static_cast<uint64_t>(span.num_tokens);
  }
  for (size_t i = 0; i < ran.plan.cohorts.size(); ++i) {
    const CohortStep& step = ran.plan.cohorts[i];
    if (!step.in_transit()) continue;
    const CohortProgress& progress = ran.result.cohorts[i];
    const bool has_ended = progress.num_visits > 0 && progress.cursor == kEntry;
    if (has_ended) stats_.swapped_tokens += static_cast<uint64_t>(NumRowsOf(step.rows));
  }
}

const EngineStats& EngineCounters::Snapshot() {
  UpdateGauges(&stats_);
  return stats_;
}

void EngineCounters::UpdateGauges(EngineStats* stats) {
  stats->num_running = static_cast<int64_t>(state_->running.size());
  stats->num_waiting = static_cast<int64_t>(state_->waiting.size());
  stats->gpu_blocks_total = kv_->total_blocks(Tier::kGpu);
  stats->gpu_blocks_free = kv_->free_blocks(Tier::kGpu);
  stats->cpu_blocks_total = kv_->total_blocks(Tier::kCpu);
  stats->cpu_blocks_free = kv_->free_blocks(Tier::kCpu);
  stats->block_size = kv_->block_size();
  for (const Tier tier : {Tier::kGpu, Tier::kCpu})
    stats->prefix_blocks[static_cast<size_t>(tier)] = kv_->known_blocks(tier);
  const int64_t cpu_blocks = stats->cpu_blocks_total - stats->cpu_blocks_free;
  max_cpu_blocks_ = std::max(max_cpu_blocks_, cpu_blocks);
  stats->cpu_kv_tokens = cpu_blocks * stats->block_size;
  stats->max_cpu_kv_tokens = max_cpu_blocks_ * stats->block_size;
}

}  // namespace tandem
