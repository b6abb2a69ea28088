// A quotient in a benchmark's report.
#pragma once

#include <nlohmann/json.hpp>

namespace tandem {

// numerator / denominator; null where the denominator is nothing.
inline nlohmann::ordered_json RatioOrNull(double numerator, double denominator) {
  return denominator > 0 ? nlohmann::ordered_json(numerator / denominator) : nlohmann::ordered_json(nullptr);
}

}  // namespace tandem
