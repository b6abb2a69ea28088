#include "planning/transit_pass.h"

#include <algorithm>

#include "base/largest_that.h"
#include "perf/time_model.h"

namespace tandem {

namespace {

TransitTimes LayerOfChunk(const TimeModel& time, int64_t start, int64_t num_tokens) {
  return time.TransitLayerOf({{.sequence = 0, .start = start, .num_tokens = num_tokens, .tier = Tier::kCpu}});
}

}  // namespace

TransitRules TransitRulesOf(const PlanningInput& input, const Target& target, const Room& room) {
  IterationLoad beside = room.gpu_load;
  if (input.offloads_all() || room.gpu_rows.empty()) {
    beside.main_cpu_rows = room.cpu_rows.size();
    beside.main_cpu_kv_tokens = room.cpu_rows.KvTokens(0, room.cpu_rows.size());
  }
  const auto all_rows = static_cast<double>(input.state.limits.max_num_batched_tokens);
  TransitRules rules{
      .in_flight = room.in_transit,
      .max_rows = std::max<int64_t>(1, static_cast<int64_t>(input.tuning.most_rows_in_transit * all_rows)),
      .limit_us = input.tuning.transit_alone_us};
  if (beside.main_rows() > 0) {
    rules.beside_us = TimeModel(input.costs).IterationUs(beside);
    rules.limit_us = input.tuning.transit_stretch * rules.beside_us;
  }
  if (target.max_iteration_us > 0) rules.limit_us = std::min(rules.limit_us, target.max_iteration_us);
  return rules;
}

int64_t TokensInTransit(const TransitRules& rules, const LayerCosts& costs,
                        const std::vector<RowSpan>& others, int64_t start, int64_t most_tokens) {
  const TimeModel time(costs);
  std::vector<RowSpan> rows = others;
  rows.push_back({.sequence = 0, .start = start, .tier = Tier::kCpu});
  const auto fits = [&](int64_t num_tokens) {
    rows.back().num_tokens = num_tokens;
    const TransitTimes layer = time.TransitLayerOf(rows);
    return layer.compute_us <= std::max(rules.limit_us - rules.beside_us, layer.copies_us);
  };
  const int64_t num_tokens = LargestThat(most_tokens, fits);
  return others.empty() ? std::max<int64_t>(1, num_tokens) : num_tokens;
}

int64_t TokensInOneIteration(const TransitRules& rules, const LayerCosts& costs, int64_t start,
                             int64_t most_tokens) {
  const TimeModel time(costs);
  const auto num_layers = static_cast<double>(costs.num_layers());
  const int64_t num_tokens = LargestThat(most_tokens, [&](int64_t count) {
    const TransitTimes layer = LayerOfChunk(time, start, count);
    return num_layers * layer.compute_us <=
           std::max(rules.limit_us - rules.beside_us, num_layers * layer.copies_us);
  });
  return std::max<int64_t>(1, num_tokens);
}

int64_t TokensHiddenByCopies(const TransitRules& rules, const LayerCosts& costs, int64_t start,
                             int64_t most_tokens) {
  const TimeModel time(costs);
  const auto num_layers = static_cast<double>(costs.num_layers());
  const double weights_us = rules.beside_us > 0 ? costs.LinearUs(1) : 0;
  return LargestThat(most_tokens, [&](int64_t count) {
    const TransitTimes layer = LayerOfChunk(time, start, count);
    return rules.beside_us + num_layers * (layer.compute_us - weights_us) <= num_layers * layer.copies_us;
  });
}

std::vector<Visit> VisitsInTransit(const TransitRules& rules, const LayerCosts& costs,
                                   const std::vector<RowSpan>& rows, int64_t cursor, double others_us) {
  const int64_t num_layers = costs.num_layers();
  const TransitTimes layer = TimeModel(costs).TransitLayerOf(rows);
  const int64_t first_layer = std::max<int64_t>(0, cursor);
  const int64_t num_left = num_layers - first_layer;
  const int64_t most = LargestThat(num_left, [&](int64_t count) {
    const auto times = static_cast<double>(count);
    return std::max(others_us + times * layer.compute_us, times * layer.copies_us) <= rules.limit_us;
  });
  const int64_t count = std::max<int64_t>(1, most);
  std::vector<Visit> visits;
  if (cursor == kEntry) visits.push_back({.boundary = kEntry, .layer = kEntry});
  for (int64_t i = 0; i < count; ++i)
    visits.push_back({.boundary = (i + 1) * num_layers / count - 1, .layer = first_layer + i});
  return visits;
}

}  // namespace tandem
