// Rows that a kernel takes at once, in a number that is known when it is compiled.
#pragma once

#include <cstdint>

#include "simd/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// call.operator()<num_rows>(), for 1 <= num_rows <= kMost, which is 4 or 6.
template <int kMost, typename Call>
TANDEM_SIMD_INLINE void WithNumRows(int64_t num_rows, const Call& call) {
  static_assert(kMost == 4 || kMost == 6);
  switch (num_rows) {
    case 1:
      return call.template operator()<1>();
    case 2:
      return call.template operator()<2>();
    case 3:
      return call.template operator()<3>();
    case 4:
      return call.template operator()<4>();
    default:
      if constexpr (kMost > 4) {
        if (num_rows == 5) return call.template operator()<5>();
        return call.template operator()<6>();
      }
  }
}

// call.operator()<rows>(first row) for groups of at most kMost rows, as even as they can be.
template <int kMost, typename Call>
TANDEM_SIMD_INLINE void ForEachRowGroup(int64_t num_rows, const Call& call) {
  const int64_t num_groups = (num_rows + kMost - 1) / kMost;
  int64_t row = 0;
  for (int64_t group = 0; group < num_groups; ++group) {
    const int64_t rows = num_rows / num_groups + (group < num_rows % num_groups ? 1 : 0);
    WithNumRows<kMost>(rows, [&]<int kRows>() { call.template operator()<kRows>(row); });
    row += rows;
  }
}

}  // namespace
}  // namespace tandem
