// Whole units of something.
#pragma once

namespace tandem {

// value / unit, rounded up. Neither is negative, unit is not 0.
template <typename Int>
constexpr Int DivideUp(Int value, Int unit) {
  return (value + unit - 1) / unit;
}

// The smallest multiple of unit that is no less than value.
template <typename Int>
constexpr Int RoundUp(Int value, Int unit) {
  return DivideUp(value, unit) * unit;
}

}  // namespace tandem
