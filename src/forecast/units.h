// Of figures as data sheets print them.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr double kGB = 1e9;
inline constexpr double kTera = 1e12;
inline constexpr int64_t kGiB = int64_t{1} << 30;
inline constexpr double kUsPerSecond = 1e6;

inline double ToGiB(int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kGiB);
}

}  // namespace tandem
