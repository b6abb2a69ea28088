// How often a cost is measured: medians within a budget of time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

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
  bool HasTimeFor(double growth) const;

  // The median of run(true) microseconds over some runs; run(false) is a first one that makes ready what
  // later ones find (memory, choice of kernels), and counts only if there is no time for more.
  double MedianUs(const std::function<double(bool warm)>& run);

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
};

}  // namespace tandem
