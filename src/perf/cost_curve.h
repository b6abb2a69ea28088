// A measured cost as a function of one whole number, between its points and beyond them.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct CostPoint {
  int64_t count = 0;  // tokens or rows
  double us = 0;
  bool operator==(const CostPoint&) const = default;
};

// Piecewise linear through its points. Never negative, never falling: a point above a later one is lowered to
// that, for what disturbs a measurement makes it longer. Immutable.
//
// Planning asks thousands of times an iteration, so what lies at small counts is kept for each of them.
class CostCurve {
 public:
  CostCurve() = default;
  // points: ascending counts, none negative; us finite, none negative.
  explicit CostCurve(std::vector<CostPoint> points);

  bool empty() const { return points_.empty(); }
  const std::vector<CostPoint>& points() const { return points_; }
  // Before the first point: on the line of the first two, not below 0. After the last: by last_slope().
  double Us(int64_t count) const {
    const auto index = static_cast<uint64_t>(count);
    return index < us_.size() ? us_[index] : Interpolated(count);
  }
  // Microseconds a count beyond the last point. One point: as if the cost were proportional.
  double last_slope() const { return last_slope_; }

 private:
  void FindSlopes();
  double Interpolated(int64_t count) const;

  std::vector<CostPoint> points_;
  std::vector<double> us_;  // by count, from 0 on
  double first_slope_ = 0;
  double last_slope_ = 0;
};

}  // namespace tandem
