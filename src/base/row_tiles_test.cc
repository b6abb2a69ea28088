#include "base/row_tiles.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

const RowTiles kTiles = {.steps = {{64, 1}, {256, 16}}, .last_tile_rows = 128};

TEST(RowTiles, AreLargerForMoreRows) {
  EXPECT_EQ(kTiles.TileOf(0), 1);
  EXPECT_EQ(kTiles.TileOf(64), 1);
  EXPECT_EQ(kTiles.TileOf(65), 16);
  EXPECT_EQ(kTiles.TileOf(256), 16);
  EXPECT_EQ(kTiles.TileOf(257), 128);
}

TEST(RowTiles, WholeTiles) {
  EXPECT_EQ(kTiles.NearestWhole(37), 37);
  EXPECT_EQ(kTiles.NearestWhole(87), 80);
  EXPECT_EQ(kTiles.NearestWhole(88), 96);
  EXPECT_EQ(kTiles.NearestWhole(300), 256);
  EXPECT_EQ(kTiles.NearestWhole(320), 384);
  EXPECT_EQ(kTiles.RoundedUp(37), 37);
  EXPECT_EQ(kTiles.RoundedUp(80), 80);
  EXPECT_EQ(kTiles.RoundedUp(81), 96);
  EXPECT_EQ(kTiles.RoundedUp(300), 384);
}

TEST(RowTiles, ByItselfEachRowIsATile) {
  EXPECT_EQ(RowTiles().NearestWhole(333), 333);
  EXPECT_EQ(RowTiles().RoundedUp(333), 333);
}

}  // namespace
}  // namespace tandem
