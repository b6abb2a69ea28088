#include "planning/operating_point.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace tandem {
namespace {

SteadyTimes::Point PointAt(const SteadyTimes& steady, double cpu_rows, Overlap overlap) {
  return overlap == Overlap::kAsymmetric ? steady.Asymmetric(cpu_rows) : steady.Asynchronous(cpu_rows);
}

// Of the time of the requests that are here, the share that is left once the tier holds so many rows.
double ShareWithFullTier(const SteadyWork& work, double cpu_rows, const PlannerTuning& tuning) {
  if (work.num_requests <= 0) return 1;
  // Who has yet to arrive brings work of its own.
  const double most = tuning.most_filled_in * work.num_waiting;
  const double num_missing = std::clamp(cpu_rows - work.present_cpu_rows, 0.0, most);
  return std::max(0.0, 1 - num_missing / work.num_requests);
}

}  // namespace

double DecodedTokenUs(const SteadyWork& work, double prefilled_token_us, double rate) {
  return std::max(prefilled_token_us, 1 / rate - work.prompt_tokens_per_output * prefilled_token_us);
}

OperatingPoint FindOperatingPoint(const SteadyWork& work, Overlap overlap, const LayerCosts& costs,
                                  const PlannerTuning& tuning) {
  const SteadyTimes steady(work, costs);
  // Riding rows share the rows of an iteration with prefill and decodes only as far as they visit.
  const double rows_with_prefill = overlap == Overlap::kAsynchronous
                                       ? work.max_cpu_rows
                                       : work.max_rows / (1 + work.prompt_tokens_per_output) - work.gpu_rows;
  const double max_cpu_rows = std::floor(std::max(0.0, std::min(work.max_cpu_rows, rows_with_prefill)));

  std::array<SteadyTimes::Point, 64> points;
  size_t num_points = 0;
  // 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, ..., max_cpu_rows
  for (double rows = 0; num_points < points.size();) {
    if (work.gpu_rows + rows > 0) {
      const SteadyTimes::Point point = PointAt(steady, rows, overlap);
      if (num_points > 0 && work.max_iteration_us > 0 && point.iteration_us > work.max_iteration_us) break;
      points[num_points++] = point;
    }
    if (rows >= max_cpu_rows) break;
    rows = std::min(max_cpu_rows, std::floor(std::max(rows + 1, rows * tuning.next_rows)));
  }
  const bool gpu_tier_decodes = num_points > 0 && points[0].cpu_rows == 0;
  // Riding is weighed against filling where it is chosen (target.cc): its rows are many and worth little
  // each.
  const bool has_price = overlap == Overlap::kAsymmetric && gpu_tier_decodes;
  const auto value_of = [&](const SteadyTimes::Point& point) {
    if (!has_price) return point.rate;
    return points[0].rate + ShareWithFullTier(work, point.cpu_rows, tuning) * (point.rate - points[0].rate);
  };
  double best = 0;
  for (size_t i = 0; i < num_points; ++i) best = std::max(best, value_of(points[i]));
  const SteadyTimes::Point* const end = points.cbegin() + num_points;
  const auto is_nearly_best = [&](const SteadyTimes::Point& point) {
    return value_of(point) >= tuning.nearly_best * best;
  };
  const SteadyTimes::Point* chosen = std::find_if(points.cbegin(), end, is_nearly_best);
  // Where the gpu tier holds many, a cpu tier that shrinks costs little.
  if (has_price && work.gpu_rows <= tuning.few_gpu_rows * chosen->cpu_rows) {
    const double most = tuning.kept_of_present * work.present_cpu_rows;
    for (const SteadyTimes::Point* point = chosen; point < end && point->cpu_rows <= most; ++point) {
      if (is_nearly_best(*point)) chosen = point;
    }
  }
  const bool must_be_worth_it = has_price && work.present_cpu_rows < tuning.mostly_there * chosen->cpu_rows;
  if (must_be_worth_it && value_of(*chosen) < tuning.worth_splitting * points[0].rate)
    chosen = points.begin();

  OperatingPoint result;
  result.prefilled_token_us = steady.PrefilledTokenUs();
  result.decoded_token_us = result.prefilled_token_us;
  if (num_points == 0) return result;
  result.cpu_rows = std::llround(chosen->cpu_rows);
  result.rate = chosen->rate;
  result.best_rate = best;
  result.iteration_us = chosen->iteration_us;
  result.decoded_token_us = DecodedTokenUs(work, result.prefilled_token_us, chosen->rate);
  return result;
}

double SteadyRate(const SteadyWork& work, double cpu_rows, Overlap overlap, const LayerCosts& costs) {
  return work.gpu_rows + cpu_rows <= 0 ? 0 : PointAt(SteadyTimes(work, costs), cpu_rows, overlap).rate;
}

}  // namespace tandem
