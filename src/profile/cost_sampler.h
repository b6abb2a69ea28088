// How often a cost is measured: medians within a budget of time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "perf/cost_surface.h"

namespace tandem {

// share: of all that is to be measured, 0 .. 1. what: static storage.
using ProfileProgress = std::function<void(double share, std::string_view what)>;

// Spends a budget on sections (one table each), whose costs are measured point by point from cheap to dear.
// One thread.
class CostSampler {
 public:
  using Clock = std::chrono::steady_clock;

  CostSampler(double budget_seconds, ProfileProgress progress);

  // share: of the whole budget. What earlier sections left over is spread over those to come.
  void BeginSection(std::string_view what, double share, int64_t num_points);

  // Before a point: whether the section's time allows for it. The first point always is. growth: how many
  // times the work of the point before.
  bool HasTimeFor(double growth);

  // The median of run(true) microseconds over some runs; run(false) is a first one that makes ready what
  // later ones find (memory, choice of kernels), and counts only if there is no time for more. What a first
  // run takes for code that is loaded, or that a driver compiles, is neither a cost nor of the budget.
  double MedianUs(const std::function<double(bool warm)>& run);

  // The points of a section's lines, each line as far as there is time. growth: of point i of a line, as
  // HasTimeFor takes it. measure: microseconds of a point. Points that were not measured are taken out, and
  // lines without any.
  void MeasureLines(const std::function<double(const CostLine& line, size_t i)>& growth,
                    const std::function<double(const CostLine& line, int64_t count)>& measure,
                    std::vector<CostLine>* lines);

 private:
  double SecondsLeft() const;

  Clock::time_point end_;
  ProfileProgress progress_;
  std::string_view what_;
  double share_done_ = 0;     // before this section
  double section_share_ = 0;  // of the whole
  Clock::time_point section_end_;
  int64_t num_points_ = 0;
  int64_t num_done_ = 0;
  double last_run_seconds_ = 0;
  double expected_run_seconds_ = 0;  // of the next point, by the last run
};

// Growth of a line whose points cost in proportion to their counts; its first is about as dear as the point
// before.
double GrowthOfCounts(const CostLine& line, size_t i);

}  // namespace tandem
