// Search over whole numbers.
#pragma once

#include <cstdint>

namespace tandem {

// The largest n in 0 .. most for which holds(n) is true. It is true up to some n and false from there on, and
// is not asked for 0. A most below 0 counts as 0.
template <typename Predicate>
int64_t LargestThat(int64_t most, Predicate holds) {
  int64_t low = 0;
  int64_t high = most;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace tandem
