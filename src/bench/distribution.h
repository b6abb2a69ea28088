// Mean and percentiles of a list of measured values.
#pragma once

#include <optional>
#include <vector>

namespace tandem {

struct Distribution {
  double mean = 0;
  double median = 0;
  double p90 = 0;
  double p99 = 0;
};

// percent: [0, 100]. sorted: ascending, not empty. Linear between the two nearest ranks, as numpy's default.
double Percentile(const std::vector<double>& sorted, double percent);

// The percentiles 0, 1, ..., 100. Empty of no values.
std::vector<double> AllPercentiles(std::vector<double> values);

// nullopt of no values.
std::optional<Distribution> Summarize(std::vector<double> values);

}  // namespace tandem
