#include "profile/cost_sampler.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr size_t kMaxSamples = 15;
// Cheap points end here even if there is time: more samples would not make their medians better.
constexpr double kMaxPointSeconds = 0.4;

CostSampler::Clock::duration ToDuration(double seconds) {
  return std::chrono::duration_cast<CostSampler::Clock::duration>(Seconds(seconds));
}

}  // namespace

CostSampler::CostSampler(double budget_seconds, ProfileProgress progress)
    : end_(Clock::now() + ToDuration(budget_seconds)), progress_(std::move(progress)), section_end_(end_) {}

void CostSampler::BeginSection(std::string_view what, double share, int64_t num_points) {
  share_done_ += section_share_;
  section_share_ = share;
  const double share_left = std::max(share, 1 - share_done_);
  const double seconds_left = std::max(0.0, Seconds(end_ - Clock::now()).count());
  section_end_ = Clock::now() + ToDuration(seconds_left * share / share_left);
  what_ = what;
  num_points_ = num_points;
  num_done_ = 0;
  last_run_seconds_ = 0;
  if (progress_) progress_(share_done_, what_);
}

double CostSampler::SecondsLeft() const {
  return Seconds(section_end_ - Clock::now()).count();
}

bool CostSampler::HasTimeFor(double growth) const {
  return num_done_ == 0 || last_run_seconds_ * growth < SecondsLeft();
}

double CostSampler::MedianUs(const std::function<double(bool warm)>& run) {
  const auto begin = Clock::now();
  const double budget = std::min(
      kMaxPointSeconds, SecondsLeft() / static_cast<double>(std::max<int64_t>(1, num_points_ - num_done_)));
  const double cold_us = run(false);
  auto last = Clock::now();
  last_run_seconds_ = Seconds(last - begin).count();
  std::vector<double> samples;
  while (samples.size() < kMaxSamples && Seconds(last - begin).count() + last_run_seconds_ < budget) {
    samples.push_back(run(true));
    const auto now = Clock::now();
    last_run_seconds_ = Seconds(now - last).count();
    last = now;
  }
  ++num_done_;
  if (progress_) {
    const double done =
        static_cast<double>(num_done_) / static_cast<double>(std::max<int64_t>(1, num_points_));
    progress_(share_done_ + section_share_ * std::min(1.0, done), what_);
  }
  if (samples.empty()) return cold_us;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

void CostSampler::MeasureLines(const std::function<double(const CostLine& line, size_t i)>& growth,
                               const std::function<double(const CostLine& line, int64_t count)>& measure,
                               std::vector<CostLine>* lines) {
  for (CostLine& line : *lines) {
    size_t num_measured = 0;
    for (; num_measured < line.points.size() && HasTimeFor(growth(line, num_measured)); ++num_measured) {
      CostPoint& point = line.points[num_measured];
      point.us = measure(line, point.count);
    }
    line.points.resize(num_measured);
  }
  std::erase_if(*lines, [](const CostLine& line) { return line.points.empty(); });
}

double GrowthOfCounts(const CostLine& line, size_t i) {
  if (i == 0) return 1;
  return static_cast<double>(line.points[i].count) / static_cast<double>(line.points[i - 1].count);
}

}  // namespace tandem
