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

// _tile_loadconfig. The compiler's own says that it reads 8 bytes, and stores of the others may be left out.
[[gnu::always_inline]] inline void LoadTileConfig(const TileConfig& config) {
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

// Between stores and the loads of tiles that want them: the compiler's do not say that they read memory.
[[gnu::always_inline]] inline void FinishStoresForTiles() {
  __asm__ volatile("" : : : "memory");
}

}  // namespace
}  // namespace tandem
