// Spans of the steady clock in seconds.
#pragma once

#include <chrono>

namespace tandem {

inline double SecondsBetween(std::chrono::steady_clock::time_point begin,
                             std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace tandem
