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
// A first run that takes longer, and so many times what is expected of it, has loaded or compiled code.
constexpr double kMinLoadingSeconds = 0.005;
constexpr double kLoadingFactor = 3;

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
  expected_run_seconds_ = 0;
  if (progress_) progress_(share_done_, what_);
}

double CostSampler::SecondsLeft() const {
  return Seconds(section_end_ - Clock::now()).count();
}

bool CostSampler::HasTimeFor(double growth) {
  expected_run_seconds_ = last_run_seconds_ * growth;
  return num_done_ == 0 || expected_run_seconds_ < SecondsLeft();
}

double CostSampler::MedianUs(const std::function<double(bool warm)>& run) {
  const double budget = std::min(
      kMaxPointSeconds, SecondsLeft() / static_cast<double>(std::max<int64_t>(1, num_points_ - num_done_)));
  double spent_seconds = 0;
  const auto timed = [&](bool warm) {
    const auto begin = Clock::now();
    const double us = run(warm);
    last_run_seconds_ = Seconds(Clock::now() - begin).count();
    spent_seconds += last_run_seconds_;
    return us;
  };
  const double cold_us = timed(false);
  std::vector<double> samples;
  if (last_run_seconds_ > std::max(kMinLoadingSeconds, kLoadingFactor * expected_run_seconds_)) {
    const double first_seconds = last_run_seconds_;
    samples.push_back(timed(true));
    const double loading_seconds = std::max(0.0, first_seconds - last_run_seconds_);
    spent_seconds -= loading_seconds;
    section_end_ += ToDuration(loading_seconds);
    end_ += ToDuration(loading_seconds);
  }
  while (samples.size() < kMaxSamples && spent_seconds + last_run_seconds_ < budget)
    samples.push_back(timed(true));
  expected_run_seconds_ = last_run_seconds_;
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
