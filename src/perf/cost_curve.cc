#include "perf/cost_curve.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tandem {
namespace {

// The last slope is taken over at least this ratio of counts: two close points say more about their errors.
constexpr double kLastSlopeRatio = 1.5;
// Counts that are kept: more than an iteration usually has rows.
constexpr int64_t kMostKept = 2048;

double SlopeOf(const CostPoint& from, const CostPoint& to) {
  return (to.us - from.us) / static_cast<double>(to.count - from.count);
}

}  // namespace

CostCurve::CostCurve(std::vector<CostPoint> points) : points_(std::move(points)) {
  FindSlopes();
  const int64_t num_kept = points_.empty() ? 0 : std::min(kMostKept, points_.back().count) + 1;
  us_.reserve(static_cast<size_t>(num_kept));
  for (int64_t count = 0; count < num_kept; ++count) us_.push_back(Interpolated(count));
}

void CostCurve::FindSlopes() {
  if (points_.empty()) return;
  for (size_t i = points_.size() - 1; i-- > 0;) points_[i].us = std::min(points_[i].us, points_[i + 1].us);
  const CostPoint& last = points_.back();
  if (points_.size() == 1) {
    last_slope_ = last.count > 0 ? last.us / static_cast<double>(last.count) : 0;
    return;
  }
  first_slope_ = SlopeOf(points_[0], points_[1]);
  size_t from = points_.size() - 2;
  while (from > 0 &&
         kLastSlopeRatio * static_cast<double>(points_[from].count) > static_cast<double>(last.count)) {
    --from;
  }
  last_slope_ = SlopeOf(points_[from], last);
}

double CostCurve::Interpolated(int64_t count) const {
  if (points_.empty()) return 0;
  const CostPoint& first = points_.front();
  const CostPoint& last = points_.back();
  if (count <= first.count) {
    return std::max(0.0, first.us - first_slope_ * static_cast<double>(first.count - count));
  }
  if (count >= last.count) return last.us + last_slope_ * static_cast<double>(count - last.count);
  const auto above = std::upper_bound(points_.begin(), points_.end(), count,
                                      [](int64_t n, const CostPoint& point) { return n < point.count; });
  const CostPoint& below = *(above - 1);
  const double share =
      static_cast<double>(count - below.count) / static_cast<double>(above->count - below.count);
  return below.us + share * (above->us - below.us);
}

}  // namespace tandem
