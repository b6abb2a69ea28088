// What sets up AMX's tiles. Included where its instructions are compiled.
#pragma once

#include <cstdint>

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kTileRows = 16;

// Of _tile_loadconfig, for 8 tiles: bytes of a row and rows of each.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

}  // namespace
}  // namespace tandem
