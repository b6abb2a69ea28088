#include "bench/distribution.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/check.h"

namespace tandem {

double Percentile(const std::vector<double>& sorted, double percent) {
  TANDEM_CHECK(!sorted.empty() && percent >= 0 && percent <= 100, "percentile {} of {} values", percent,
               sorted.size());
  const double position = percent / 100.0 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

std::vector<double> AllPercentiles(std::vector<double> values) {
  std::vector<double> percentiles;
  if (values.empty()) return percentiles;
  std::sort(values.begin(), values.end());
  for (int percent = 0; percent <= 100; ++percent) percentiles.push_back(Percentile(values, percent));
  return percentiles;
}

std::optional<Distribution> Summarize(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return Distribution{.mean = sum / static_cast<double>(values.size()),
                      .median = Percentile(values, 50),
                      .p90 = Percentile(values, 90),
                      .p99 = Percentile(values, 99)};
}

}  // namespace tandem
