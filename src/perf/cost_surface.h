// A measured cost as a function of rows and tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/cost_curve.h"

namespace tandem {

// What was measured with so many rows; the points' counts are tokens.
struct CostLine {
  int64_t rows = 0;
  std::vector<CostPoint> points;
  bool operator==(const CostLine&) const = default;
};

// Bilinear between the points of lines that need not have the same counts. Neither argument's growth makes
// the cost fall, and it is never negative. Immutable.
//
//   rows 16              *----*----*  - - -      beyond its points a line goes on by its last slope, but
//   rows  4       *----*----*  - - - - - - -     not above that of more rows; before them by its first
//   rows  1   *----*----*  - - - - - - - - -     slope, but not below that of fewer rows
//             tokens ->
//
// Where few rows took longer than more rows with the same tokens (a context too long to share well), the line
// of few rows is lowered: many rows are what a batch looks like.
class CostSurface {
 public:
  CostSurface() = default;
  // lines: ascending rows, at least 1; each has points, as CostCurve takes them.
  explicit CostSurface(const std::vector<CostLine>& lines);

  bool empty() const { return rows_.empty(); }
  // rows >= 1. Fewer than the first line has: that line's.
  double Us(int64_t rows, int64_t tokens) const;

 private:
  // Where a number of tokens lies: the first node above it, and its share of the way there. Beyond the last
  // node there is none above.
  struct Place {
    size_t above = 0;
    double share = 0;
  };
  Place PlaceOf(int64_t tokens) const;
  double LineUs(size_t line, int64_t tokens, const Place& place) const;
  double& at(size_t line, size_t node) { return us_[line * tokens_.size() + node]; }
  double at(size_t line, size_t node) const { return us_[line * tokens_.size() + node]; }

  std::vector<int64_t> rows_;         // of the lines
  std::vector<int64_t> tokens_;       // 0 and the counts of all lines
  std::vector<size_t> by_width_;      // the first node with as many bits, or more, by bits
  std::vector<double> us_;            // [rows_][tokens_]
  std::vector<double> token_slopes_;  // beyond tokens_, of the lines
  double row_slope_ = 0;              // beyond rows_
};

}  // namespace tandem
