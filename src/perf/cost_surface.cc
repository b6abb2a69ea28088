#include "perf/cost_surface.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

namespace tandem {
namespace {

// Bits of a count that is not negative.
int WidthOf(int64_t count) {
  return std::bit_width(static_cast<uint64_t>(count));
}

}  // namespace

CostSurface::CostSurface(const std::vector<CostLine>& lines) {
  if (lines.empty()) return;
  std::vector<CostCurve> curves;
  tokens_.push_back(0);
  for (const CostLine& line : lines) {
    rows_.push_back(line.rows);
    const CostCurve& curve = curves.emplace_back(line.points);
    for (const CostPoint& point : curve.points()) tokens_.push_back(point.count);
  }
  std::sort(tokens_.begin(), tokens_.end());
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end()), tokens_.end());
  us_.resize(rows_.size() * tokens_.size());
  for (int width = 0; width <= std::numeric_limits<int64_t>::digits + 1; ++width) {
    const auto found = std::ranges::find_if(tokens_, [&](int64_t each) { return WidthOf(each) >= width; });
    by_width_.push_back(static_cast<size_t>(found - tokens_.begin()));
  }

  const size_t last = curves.size() - 1;
  const auto first_count = [&](size_t line) { return curves[line].points().front().count; };
  for (size_t line = last + 1; line-- > 0;) {
    for (size_t node = 0; node < tokens_.size(); ++node) {
      at(line, node) = curves[line].Us(tokens_[node]);
      if (line < last && tokens_[node] >= first_count(line + 1))
        at(line, node) = std::min(at(line, node), at(line + 1, node));
    }
  }
  // What is still out of order lies before a line's first point.
  for (size_t line = 1; line <= last; ++line) {
    for (size_t node = 0; node < tokens_.size(); ++node)
      at(line, node) = std::max(at(line, node), at(line - 1, node));
  }
  for (size_t line = 0; line <= last; ++line) {
    for (size_t node = 1; node < tokens_.size(); ++node)
      at(line, node) = std::max(at(line, node), at(line, node - 1));
  }

  // Those of prefills differ by as much as their rows do.
  token_slopes_.resize(rows_.size());
  for (size_t line = last + 1; line-- > 0;) {
    token_slopes_[line] = curves[line].last_slope();
    if (line < last) token_slopes_[line] = std::min(token_slopes_[line], token_slopes_[line + 1]);
  }
  if (last == 0) return;
  // What a row costs of itself: with the same tokens, few for each row.
  const int64_t tokens = first_count(last);
  const Place place = PlaceOf(tokens);
  row_slope_ = (LineUs(last, tokens, place) - LineUs(last - 1, tokens, place)) /
               static_cast<double>(rows_[last] - rows_[last - 1]);
}

CostSurface::Place CostSurface::PlaceOf(int64_t tokens) const {
  if (tokens <= 0 || tokens >= tokens_.back()) return {.above = tokens <= 0 ? 0 : tokens_.size()};
  // Nodes with as many bits are few, and the first one with more is above it.
  const auto width = static_cast<size_t>(WidthOf(tokens));
  size_t above = by_width_[width];
  while (tokens_[above] <= tokens) ++above;
  const int64_t below = tokens_[above - 1];
  return {.above = above,
          .share = static_cast<double>(tokens - below) / static_cast<double>(tokens_[above] - below)};
}

double CostSurface::LineUs(size_t line, int64_t tokens, const Place& place) const {
  if (place.above == 0) return at(line, 0);
  if (place.above == tokens_.size()) {
    return at(line, tokens_.size() - 1) + token_slopes_[line] * static_cast<double>(tokens - tokens_.back());
  }
  return at(line, place.above - 1) + place.share * (at(line, place.above) - at(line, place.above - 1));
}

double CostSurface::Us(int64_t rows, int64_t tokens) const {
  if (rows_.empty()) return 0;
  const Place place = PlaceOf(tokens);
  if (rows <= rows_.front()) return LineUs(0, tokens, place);
  if (rows >= rows_.back()) {
    return LineUs(rows_.size() - 1, tokens, place) + row_slope_ * static_cast<double>(rows - rows_.back());
  }
  const auto above = std::upper_bound(rows_.begin(), rows_.end(), rows);
  const auto line = static_cast<size_t>(above - rows_.begin());
  const double share = static_cast<double>(rows - *(above - 1)) / static_cast<double>(*above - *(above - 1));
  const double below_us = LineUs(line - 1, tokens, place);
  return below_us + share * (LineUs(line, tokens, place) - below_us);
}

}  // namespace tandem
