#include "cpu_attention/append_token.h"

#include <cstddef>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "cpu_attention/kv_block.h"
#include "cpu_attention/kv_codes.h"

namespace tandem {
namespace {

// bf16 and fp16 bits have the same C++ type: the pairing tells them apart.
struct F32Element {
  using Bits = float;
  static constexpr int64_t kPair = 1;  // adjacent values of d (K) or of tokens (V)
  static float ToF32(float bits) { return bits; }
  static float FromF32(float value) { return value; }
};
struct BF16Element {
  using Bits = bf16_t;
  static constexpr int64_t kPair = 2;
  static float ToF32(bf16_t bits) { return BF16ToF32(bits); }
  static bf16_t FromF32(float value) { return F32ToBF16(value); }
};
struct F16Element {
  using Bits = fp16_t;
  static constexpr int64_t kPair = 1;
  static float ToF32(fp16_t bits) { return F16ToF32(bits); }
  static fp16_t FromF32(float value) { return F32ToF16(value); }
};

// Where element (token, d) of K and of V lies, in elements from the head's start.
template <typename Element>
int64_t KeyIndex(const KvShape& shape, int64_t token, int64_t d) {
  constexpr int64_t kPair = Element::kPair;
  const int64_t tile_tokens = KvTileTokens(shape.block_size);
  const int64_t tile = token / tile_tokens;
  return tile * tile_tokens * shape.head_dim + d / kPair * kPair * tile_tokens + token % tile_tokens * kPair +
         d % kPair;
}
template <typename Element>
int64_t ValueIndex(const KvShape& shape, int64_t token, int64_t d) {
  constexpr int64_t kPair = Element::kPair;
  const int64_t tile_tokens = KvTileTokens(shape.block_size);
  const int64_t tile = token / tile_tokens;
  const int64_t in_tile = token % tile_tokens;
  return (shape.block_size + tile * tile_tokens) * shape.head_dim +
         d / kValueColumns * kValueColumns * tile_tokens + in_tile / kPair * kPair * kValueColumns +
         d % kValueColumns * kPair + token % kPair;
}

template <typename In, typename Element>
typename Element::Bits ToCache(typename In::Bits bits) {
  if constexpr (std::is_same_v<In, Element>) {
    return bits;
  } else {
    return Element::FromF32(In::ToF32(bits));
  }
}

template <typename In, typename Element>
void AppendTyped(const KvLayerView& kv, int32_t slot, int64_t first_head, int64_t num_heads, const void* keys,
                 const void* values) {
  const KvShape& shape = kv.shape;
  const int64_t token = slot % shape.block_size;
  const auto* key = static_cast<const typename In::Bits*>(keys);
  const auto* value = static_cast<const typename In::Bits*>(values);
  for (int64_t h = 0; h < num_heads; ++h) {
    auto* head = reinterpret_cast<typename Element::Bits*>(kv.Head(slot / shape.block_size, first_head + h));
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      head[KeyIndex<Element>(shape, token, d)] = ToCache<In, Element>(key[h * shape.head_dim + d]);
      head[ValueIndex<Element>(shape, token, d)] = ToCache<In, Element>(value[h * shape.head_dim + d]);
    }
  }
}

template <typename Element>
void ReadTyped(const KvLayerView& kv, int32_t slot, int64_t kv_head, float* key, float* value) {
  const KvShape& shape = kv.shape;
  const int64_t token = slot % shape.block_size;
  const auto* head =
      reinterpret_cast<const typename Element::Bits*>(kv.Head(slot / shape.block_size, kv_head));
  for (int64_t d = 0; d < shape.head_dim; ++d) {
    key[d] = Element::ToF32(head[KeyIndex<Element>(shape, token, d)]);
    value[d] = Element::ToF32(head[ValueIndex<Element>(shape, token, d)]);
  }
}

// One token of one head of a block of codes.
class CodedToken {
 public:
  CodedToken(const KvLayerView& kv, int32_t slot, int64_t kv_head)
      : head_dim_(kv.shape.head_dim), tile_tokens_(KvTileTokens(kv.shape.block_size)) {
    const int64_t token = slot % kv.shape.block_size;
    const size_t tile_bytes = KvTileBytes(kv.shape);
    in_tile_ = token % tile_tokens_;
    keys_ = reinterpret_cast<uint8_t*>(kv.Head(slot / kv.shape.block_size, kv_head) +
                                       static_cast<size_t>(token / tile_tokens_) * tile_bytes);
    values_ = keys_ + kv.shape.KeyBytes() + kv.shape.ScaleBytes();
  }

  uint8_t& At(bool is_key, int64_t d) const {
    return is_key ? keys_[CodedKeyIndex(tile_tokens_, in_tile_, d)]
                  : values_[CodedValueIndex(tile_tokens_, in_tile_, d)];
  }
  bf16_t& Scale(bool is_key) const {
    return *reinterpret_cast<bf16_t*>((is_key ? keys_ : values_) +
                                      CodedScaleIndex(tile_tokens_, head_dim_, in_tile_));
  }

 private:
  int64_t head_dim_;
  int64_t tile_tokens_;
  int64_t in_tile_ = 0;
  uint8_t* keys_;    // of the tile
  uint8_t* values_;  // of the tile
};

template <typename In>
void AppendCodes(const KvLayerView& kv, int32_t slot, int64_t first_head, int64_t num_heads, const void* keys,
                 const void* values) {
  const KvCode code = KvCodeOf(kv.shape.format);
  const int64_t head_dim = kv.shape.head_dim;
  std::vector<float> row(static_cast<size_t>(head_dim));
  std::vector<uint8_t> bytes(static_cast<size_t>(head_dim));
  for (int64_t h = 0; h < num_heads; ++h) {
    const CodedToken token(kv, slot, first_head + h);
    for (const bool is_key : {true, false}) {
      const auto* from = static_cast<const typename In::Bits*>(is_key ? keys : values) + h * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) row[static_cast<size_t>(d)] = In::ToF32(from[d]);
      if (is_key) RotateHead(row.data(), head_dim);
      token.Scale(is_key) = EncodeHead(code, is_key, row.data(), head_dim, bytes.data());
      for (int64_t d = 0; d < head_dim; ++d) token.At(is_key, d) = bytes[static_cast<size_t>(d)];
    }
  }
}

void ReadCodes(const KvLayerView& kv, int32_t slot, int64_t kv_head, float* key, float* value) {
  const KvCode code = KvCodeOf(kv.shape.format);
  const int64_t head_dim = kv.shape.head_dim;
  const CodedToken token(kv, slot, kv_head);
  for (const bool is_key : {true, false}) {
    float* to = is_key ? key : value;
    const float scale = BF16ToF32(token.Scale(is_key));
    for (int64_t d = 0; d < head_dim; ++d) to[d] = scale * NumberOf(code, is_key, token.At(is_key, d));
  }
  RotateHead(key, head_dim);
}

// What a cache of numbers gets of one token's heads, in fp32, where those have to be fp8's.
std::vector<float> RoundedToFp8(bool is_key, const void* rows, DType dtype, int64_t num_heads,
                                int64_t head_dim) {
  std::vector<float> rounded(static_cast<size_t>(num_heads * head_dim));
  for (size_t i = 0; i < rounded.size(); ++i) {
    rounded[i] = dtype == DType::kF32    ? static_cast<const float*>(rows)[i]
                 : dtype == DType::kBF16 ? BF16ToF32(static_cast<const bf16_t*>(rows)[i])
                                         : F16ToF32(static_cast<const fp16_t*>(rows)[i]);
  }
  for (int64_t h = 0; h < num_heads; ++h) RoundHeadToFp8(is_key, rounded.data() + h * head_dim, head_dim);
  return rounded;
}

void CheckSlot(const KvLayerView& kv, int32_t slot) {
  TANDEM_CHECK(slot >= 0 && slot < kv.num_blocks * kv.shape.block_size, "slot {} of {} blocks of {} tokens",
               slot, kv.num_blocks, kv.shape.block_size);
}

}  // namespace

void AppendToken(const KvLayerView& kv, int32_t slot, int64_t first_head, int64_t num_heads, const void* keys,
                 const void* values, DType dtype) {
  if (slot < 0) return;
  CheckSlot(kv, slot);
  TANDEM_CHECK(RowsGoWith(dtype, kv.shape.format), "{} appended to a cache of {}", DTypeName(dtype),
               KvFormatName(kv.shape.format));
  if (kv.shape.format.is_coded()) {
    const auto append = dtype == DType::kF32    ? AppendCodes<F32Element>
                        : dtype == DType::kBF16 ? AppendCodes<BF16Element>
                                                : AppendCodes<F16Element>;
    return append(kv, slot, first_head, num_heads, keys, values);
  }
  if (kv.shape.format.numbers == NumberRange::kOfFp8) {
    const std::vector<float> key = RoundedToFp8(true, keys, dtype, num_heads, kv.shape.head_dim);
    const std::vector<float> value = RoundedToFp8(false, values, dtype, num_heads, kv.shape.head_dim);
    KvLayerView all_numbers = kv;
    all_numbers.shape.format.numbers = NumberRange::kAll;
    return AppendToken(all_numbers, slot, first_head, num_heads, key.data(), value.data(), DType::kF32);
  }
  const DType cache = kv.shape.plain_dtype();
  if (cache == DType::kF32) {
    AppendTyped<F32Element, F32Element>(kv, slot, first_head, num_heads, keys, values);
  } else if (cache == DType::kBF16 && dtype == DType::kF32) {
    AppendTyped<F32Element, BF16Element>(kv, slot, first_head, num_heads, keys, values);
  } else if (cache == DType::kBF16) {
    AppendTyped<BF16Element, BF16Element>(kv, slot, first_head, num_heads, keys, values);
  } else if (dtype == DType::kF32) {
    AppendTyped<F32Element, F16Element>(kv, slot, first_head, num_heads, keys, values);
  } else {
    AppendTyped<F16Element, F16Element>(kv, slot, first_head, num_heads, keys, values);
  }
}

void ReadToken(const KvLayerView& kv, int32_t slot, int64_t kv_head, float* key, float* value) {
  CheckSlot(kv, slot);
  if (kv.shape.format.is_coded()) return ReadCodes(kv, slot, kv_head, key, value);
  const DType cache = kv.shape.plain_dtype();
  if (cache == DType::kF32) {
    ReadTyped<F32Element>(kv, slot, kv_head, key, value);
  } else if (cache == DType::kBF16) {
    ReadTyped<BF16Element>(kv, slot, kv_head, key, value);
  } else {
    ReadTyped<F16Element>(kv, slot, kv_head, key, value);
  }
}

}  // namespace tandem
