// What sets up AMX's tiles. Included where its instructions are compiled.
#pragma once

#include <immintrin.h>

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

inline void LoadTileConfig(const TileConfig& config) {
  // GCC 12's intrinsic says that it reads 8 bytes: without this, stores to the others may be dropped.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

}  // namespace
}  // namespace tandem
