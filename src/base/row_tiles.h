// Products are made in tiles of rows: those of a tile that has been begun cost as much as all of it, which
// costs interpolated between few points do not show.
#pragma once

#include <cstdint>
#include <vector>

#include "base/round_up.h"

namespace tandem {

// How large the tiles are, by the number of rows; as it is, each row is its own tile.
struct RowTiles {
  struct Step {
    int64_t up_to_rows = 0;
    int64_t tile_rows = 1;
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;     // ascending
  int64_t last_tile_rows = 1;  // beyond the steps

  int64_t TileOf(int64_t num_rows) const {
    for (const Step& step : steps) {
      if (num_rows <= step.up_to_rows) return step.tile_rows;
    }
    return last_tile_rows;
  }
  // Rows of whole tiles near num_rows, and the fewest that hold them.
  int64_t NearestWhole(int64_t num_rows) const {
    const int64_t tile = TileOf(num_rows);
    return (num_rows + tile / 2) / tile * tile;
  }
  int64_t RoundedUp(int64_t num_rows) const { return RoundUp(num_rows, TileOf(num_rows)); }
  bool operator==(const RowTiles&) const = default;
};

}  // namespace tandem
