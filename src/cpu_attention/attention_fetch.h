// How a thread of decode attention fetches what it reads next. No result depends on it.
#pragma once

#include <string>

#include "simd/fetch_level.h"

namespace tandem {

// A piece is {K, V} of one head of one block. What processors like differs, also among those of one vendor:
// the trial (trial/) chooses.
struct AttentionFetch {
  FetchLevel level = FetchLevel::kL2;
  // V while K of the same piece is computed and K of the next one during V, instead of all of the next piece:
  // half as much has to stay in the cache.
  bool half_piece_ahead = false;
  // First the even and then the odd lines of a piece, instead of one line after the other. Not with
  // half_piece_ahead.
  bool every_second_line = false;
  bool operator==(const AttentionFetch&) const = default;
};

// "L2, a piece ahead".
std::string DescribeFetch(const AttentionFetch& fetch);

}  // namespace tandem
