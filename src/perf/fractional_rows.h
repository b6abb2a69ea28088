// Costs are of whole rows; means of iterations and steady states are not whole.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem {

// cost(n) at a number of rows between two whole ones.
template <typename Cost>
double Between(double num_rows, Cost cost) {
  const double below = std::floor(num_rows);
  const auto rows = static_cast<int64_t>(below);
  const double share = num_rows - below;
  return share == 0 ? cost(rows) : std::lerp(cost(rows), cost(rows + 1), share);
}

}  // namespace tandem
