// Products are made in tiles of rows: those of a tile that has been begun cost as much as all of it, which
// costs interpolated between few points do not show. Tiles are the larger the more rows there are: with
// cuBLASLt's best algorithms on 16 SMs 320 rows take 1.29 ms a layer, 321 to 384 about 1.53, 385 1.78.
#pragma once

#include <cstdint>

#include "base/round_up.h"

namespace tandem {

// Up to here more rows cost next to nothing.
inline constexpr int64_t kFewRows = 64;

constexpr int64_t RowTileOf(int64_t num_rows) {
  if (num_rows <= kFewRows) return 1;
  if (num_rows <= 256) return 16;
  return num_rows <= 384 ? 64 : 128;
}

// Whole tiles near num_rows, and the fewest that hold them.
constexpr int64_t NearestWholeTiles(int64_t num_rows) {
  const int64_t tile = RowTileOf(num_rows);
  return (num_rows + tile / 2) / tile * tile;
}
constexpr int64_t WholeTilesOf(int64_t num_rows) {
  return RoundUp(num_rows, RowTileOf(num_rows));
}

}  // namespace tandem
