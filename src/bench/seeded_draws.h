// Draws that are the same numbers with every standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace tandem {

// An unbiased draw from [0, bound).
inline uint64_t DrawBelow(std::mt19937_64& random, uint64_t bound) {
  const uint64_t limit = std::mt19937_64::max() - std::mt19937_64::max() % bound;
  uint64_t value = random();
  while (value >= limit) value = random();
  return value % bound;
}

// A length uniform within 10 % of its mean.
inline int64_t DrawLength(std::mt19937_64& random, int64_t mean) {
  const int64_t spread = mean / 10;
  return mean - spread + static_cast<int64_t>(DrawBelow(random, static_cast<uint64_t>(2 * spread + 1)));
}

// Exponential with mean 1.
inline double DrawExponential(std::mt19937_64& random) {
  constexpr double kUnit = 0x1p-53;
  return -std::log((static_cast<double>(random() >> 11) + 0.5) * kUnit);
}

// Standard normal (Box and Muller).
inline double DrawNormal(std::mt19937_64& random) {
  constexpr double kUnit = 0x1p-53;
  const double u = (static_cast<double>(random() >> 11) + 0.5) * kUnit;
  const double v = static_cast<double>(random() >> 11) * kUnit;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace tandem
