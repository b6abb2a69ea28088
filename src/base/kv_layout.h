// Shape of the paged KV cache and where the blocks of a layer lie. The order of elements inside a block
// belongs to the backend (host memory: cpu_attention/kv_block.h); everyone else moves whole pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace tandem {

// What elements narrower than the numbers they stand for are multiplied with.
enum class ScaleKind : uint8_t {
  kNone,
  kPerToken,  // one bf16 scale for each token and head, K and V apart
};

// Which numbers of their type elements are.
enum class NumberRange : uint8_t {
  kAll,
  kOfFp8,  // those that KvFormat::Fp8() holds too: a head is rounded to them when it is appended
};

// How the elements of K and V are stored; the tiers may differ.
struct KvFormat {
  DType k_type = DType::kF32;
  DType v_type = DType::kF32;
  ScaleKind scales = ScaleKind::kNone;
  NumberRange numbers = NumberRange::kAll;

  // K and V of one type, no scales.
  static constexpr KvFormat Plain(DType dtype) { return {.k_type = dtype, .v_type = dtype}; }
  // Such numbers of it as fp8 has, for a tier beside one of Fp8(): both hold the same.
  static constexpr KvFormat PlainOfFp8(DType dtype) {
    return {.k_type = dtype, .v_type = dtype, .numbers = NumberRange::kOfFp8};
  }
  // Codes of 8 bits with a scale for each token and head, K rotated (cpu_attention/kv_codes.h).
  static constexpr KvFormat Int8() {
    return {.k_type = DType::kI8, .v_type = DType::kI8, .scales = ScaleKind::kPerToken};
  }
  // Codes of E4M3 with a scale for each token and head that is a power of two (cpu_attention/kv_codes.h).
  static constexpr KvFormat Fp8() {
    return {.k_type = DType::kF8E4M3, .v_type = DType::kF8E4M3, .scales = ScaleKind::kPerToken};
  }
  // Of a cache whose elements are of this type: kI8 stands for Int8(), kF8E4M3 for Fp8(), others for
  // themselves.
  static constexpr KvFormat Of(DType dtype) {
    return dtype == DType::kI8 ? Int8() : dtype == DType::kF8E4M3 ? Fp8() : Plain(dtype);
  }
  constexpr bool operator==(const KvFormat&) const = default;

  // Codes of 8 bits, which are in the order of cpu_attention/kv_block.h on every backend.
  constexpr bool is_coded() const { return *this == Int8() || *this == Fp8(); }
  // Elements are the numbers themselves, of this type.
  constexpr bool is_plain(DType dtype) const {
    return k_type == dtype && v_type == dtype && scales == ScaleKind::kNone;
  }
};

// Text for messages: "bf16", "bf16 of fp8's numbers", or "K int8, V int4, a scale for each token".
std::string KvFormatName(const KvFormat& format);

// Keys that CPU attention takes together: those of a context at multiples of it form a partition.
constexpr int64_t kPartitionTokens = 512;
// Rows for which it reads a partition at once, at most.
constexpr int64_t kRowsPerGroup = 8;

struct KvShape {
  KvFormat format;
  int64_t block_size = 32;  // tokens a block
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  bool operator==(const KvShape&) const = default;

  // The type of K and V, for whoever knows plain elements only. CHECKs that it is one, without scales.
  DType plain_dtype() const;

  // Of one head of one block of one layer: {K with its scales, V with its scales}.
  size_t KeyBytes() const { return BytesFor(format.k_type, block_size * head_dim); }
  size_t ValueBytes() const { return BytesFor(format.v_type, block_size * head_dim); }
  // Those of K or those of V.
  size_t ScaleBytes() const {
    return format.scales == ScaleKind::kNone ? 0 : BytesFor(DType::kBF16, block_size);
  }
  size_t HeadBytes() const { return KeyBytes() + ValueBytes() + 2 * ScaleBytes(); }
  // All heads of one block of one layer.
  size_t BlockBytes() const { return static_cast<size_t>(num_kv_heads) * HeadBytes(); }
  // All heads of one token of one layer.
  size_t TokenBytes() const { return BlockBytes() / static_cast<size_t>(block_size); }
};

// How the kv heads are spread over parts of the memory, one a NUMA node: part p holds heads
// [p * heads_per_part, (p + 1) * heads_per_part) of every block, the last part what is left.
struct KvParts {
  int64_t num_parts = 1;
  int64_t heads_per_part = 0;
};

// As many parts as wanted, fewer if there are fewer heads; each at least one head.
constexpr KvParts SplitHeads(int64_t num_kv_heads, int64_t wanted_parts) {
  const int64_t heads_per_part = (num_kv_heads + wanted_parts - 1) / std::max<int64_t>(1, wanted_parts);
  return {(num_kv_heads + heads_per_part - 1) / heads_per_part, heads_per_part};
}

// One layer of one tier. Within a part, block b is [kv head]{K, V}, each with its scales; blocks follow each
// other.
struct KvLayerView {
  void* data = nullptr;
  KvShape shape;
  int64_t num_blocks = 0;
  int64_t heads_per_part = 0;  // 0: all heads are in one part
  size_t part_stride_bytes = 0;

  // What head kv_head of a block holds. Heads of one part follow each other.
  std::byte* Head(int64_t block, int64_t kv_head) const {
    auto* base = static_cast<std::byte*>(data);
    int64_t heads = shape.num_kv_heads;
    if (heads_per_part > 0) {
      const int64_t part = kv_head / heads_per_part;
      base += static_cast<size_t>(part) * part_stride_bytes;
      kv_head -= part * heads_per_part;
      heads = heads_per_part;
    }
    return base + static_cast<size_t>(block * heads + kv_head) * shape.HeadBytes();
  }
};

}  // namespace tandem
