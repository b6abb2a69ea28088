#include "server/tiers_event.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

std::string_view StateName(LiveRequest::State state) {
  switch (state) {
    case LiveRequest::State::kWaiting:
      return "waiting";
    case LiveRequest::State::kPrefill:
      return "prefill";
    case LiveRequest::State::kDecode:
      return "decode";
  }
  return "";
}

ordered_json RequestRow(const LiveRequest& request) {
  return {{"id", request.id},
          {"state", StateName(request.state)},
          {"tier", request.tier ? ordered_json(TierName(*request.tier)) : ordered_json(nullptr)},
          {"prompt_tokens", request.prompt_tokens},
          {"computed_tokens", request.computed_tokens},
          {"generated_tokens", request.generated_tokens},
          {"max_tokens", request.max_tokens},
          {"blocks", request.blocks},
          {"preemptions", request.preemptions}};
}

ordered_json TiersOf(const EngineStats& stats) {
  const auto cached = [&stats](Tier tier) { return stats.prefix_blocks[static_cast<size_t>(tier)]; };
  return {
      {"gpu",
       {{"blocks", stats.gpu_blocks_total}, {"free", stats.gpu_blocks_free}, {"cached", cached(Tier::kGpu)}}},
      {"cpu",
       {{"blocks", stats.cpu_blocks_total},
        {"free", stats.cpu_blocks_free},
        {"cached", cached(Tier::kCpu)}}}};
}

ordered_json TotalsOf(const EngineStats& stats) {
  return {{"iterations", stats.iterations},
          {"prompt_tokens", stats.prompt_tokens},
          {"generated_tokens", stats.generation_tokens},
          {"cpu_tier_tokens", stats.cpu_tier_tokens},
          {"swapped_tokens", stats.swapped_tokens},
          {"preemptions", stats.preemptions},
          {"prefix_queried_tokens", stats.prefix_queried_tokens},
          {"prefix_hit_tokens", stats.prefix_hit_tokens},
          {"rejected_requests", stats.rejected_requests},
          {"busy_seconds", stats.busy_seconds},
          {"schedule_seconds", stats.schedule.SumUs() / 1e6},
          {"gpu_busy_seconds", stats.gpu_busy_seconds},
          {"gpu_gap_seconds", stats.gpu_gap_seconds},
          {"cpu_attention_busy_seconds", stats.cpu_attention_busy_seconds},
          {"cpu_attention_kv_bytes", stats.cpu_attention_kv_bytes},
          {"rider_visits", stats.rider_visits},
          {"rider_skips", stats.rider_skips},
          {"predicted_seconds", stats.predicted_seconds},
          {"prediction_error_seconds", stats.prediction_error_seconds},
          {"strategy_iterations", stats.strategy_iterations}};
}

ordered_json SummaryOf(const LatencySummary& summary) {
  if (summary.count == 0) return {{"count", 0}};
  return {{"count", summary.count},
          {"p50_ms", summary.p50_ms},
          {"p90_ms", summary.p90_ms},
          {"p99_ms", summary.p99_ms}};
}

}  // namespace

std::string TiersJson(const TiersEvent& event) {
  const EngineStats& stats = event.view != nullptr ? event.view->stats : event.stats;
  ordered_json requests = ordered_json::array();
  if (event.view != nullptr) {
    for (const LiveRequest& request : event.view->requests) requests.push_back(RequestRow(request));
  } else if (stats.num_running + stats.num_waiting > 0) {
    requests = nullptr;
  }
  const LatencyWindow& latencies = *event.latencies;
  return DumpJson({{"time", event.time_s},
                   {"strategy", event.strategy},
                   {"block_size", stats.block_size},
                   {"tiers", TiersOf(stats)},
                   {"running", stats.num_running},
                   {"waiting", stats.num_waiting},
                   {"requests", std::move(requests)},
                   {"requests_left_off", event.view != nullptr ? event.view->num_left_off : 0},
                   {"totals", TotalsOf(stats)},
                   {"last_minute",
                    {{"time_to_first_token", SummaryOf(latencies.time_to_first_token())},
                     {"time_per_output_token", SummaryOf(latencies.per_output_token())},
                     {"inter_token_latency", SummaryOf(latencies.inter_token())}}}});
}

std::string TimelineJson(const std::vector<TimelineSpan>& spans) {
  int64_t origin_ns = spans.empty() ? 0 : spans.front().begin_ns;
  for (const TimelineSpan& span : spans) origin_ns = std::min(origin_ns, span.begin_ns);
  const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
  std::map<std::string_view, ordered_json> lanes;
  for (const TimelineSpan& span : spans) {
    lanes[span.lane].push_back(
        {span.name, us(span.begin_ns - origin_ns), us(std::max<int64_t>(0, span.end_ns - span.begin_ns))});
  }
  ordered_json lane_list = ordered_json::array();
  for (auto& [name, lane] : lanes) lane_list.push_back({{"name", name}, {"spans", std::move(lane)}});
  return DumpJson({{"lanes", std::move(lane_list)}});
}

}  // namespace tandem
