// What the kernels that read and write codes must know of a cache of codes.
#pragma once

#include "base/kv_layout.h"
#include "cpu_attention/kv_block.h"
#include "cpu_attention/kv_codes.h"

namespace tandem {

inline bool IsCoded(const KvShape& shape) {
  return shape.format.is_coded();
}

// Passed to kernels by value. A head of a block is {K of every tile, V of every tile}.
struct CodedHeads {
  KvCode code = KvCode::kInt8;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;
  int tile_tokens = 0;
  int rotation_size = 0;
  float rotation_factor = 0;
  int tile_bytes = 0;  // of K or V
  int part_bytes = 0;  // K of all tiles, or V
  int head_bytes = 0;

  // CHECKs the shape.
  static CodedHeads Of(const KvLayerView& kv) {
    CheckKvShape(kv);
    const KvShape& shape = kv.shape;
    return {.code = KvCodeOf(shape.format),
            .num_kv_heads = static_cast<int>(shape.num_kv_heads),
            .head_dim = static_cast<int>(shape.head_dim),
            .block_size = static_cast<int>(shape.block_size),
            .tile_tokens = static_cast<int>(KvTileTokens(shape.block_size)),
            .rotation_size = static_cast<int>(RotationSize(shape.head_dim)),
            .rotation_factor = RotationFactor(shape.head_dim),
            .tile_bytes = static_cast<int>(KvTileBytes(shape)),
            .part_bytes = static_cast<int>(shape.KeyBytes() + shape.ScaleBytes()),
            .head_bytes = static_cast<int>(shape.HeadBytes())};
  }

  constexpr int num_tiles() const { return block_size / tile_tokens; }
  // Where a tile of K or V begins in its head, in bytes.
  constexpr int TileBegin(int tile, bool is_value) const {
    return (is_value ? part_bytes : 0) + tile * tile_bytes;
  }
};

}  // namespace tandem
