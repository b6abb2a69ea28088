#include "ops/host/append_kv.h"

#include <cstddef>

#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/kv_block.h"
#include "ops/host/row_tasks.h"

namespace tandem {
namespace {

float ToCache(float value, float /*cache type*/) {
  return value;
}
float ToCache(bf16_t value, float /*cache type*/) {
  return BF16ToF32(value);
}
bf16_t ToCache(float value, bf16_t /*cache type*/) {
  return F32ToBF16(value);
}
bf16_t ToCache(bf16_t value, bf16_t /*cache type*/) {
  return value;
}

template <typename In, typename T>
void AppendHead(const KvShape& shape, int64_t offset, const In* key, const In* value, T* head) {
  constexpr int64_t kPair = sizeof(T) == 2 ? 2 : 1;  // adjacent values of d (K) or of tokens (V)
  const int64_t tile_tokens = KvTileTokens(shape.block_size);
  const int64_t tile = offset / tile_tokens;
  T* keys = head + tile * tile_tokens * shape.head_dim + offset % tile_tokens * kPair;
  T* values = head + KvHeadElements(shape) + offset / kPair * kPair * shape.head_dim + offset % kPair;
  for (int64_t d = 0; d < shape.head_dim; d += kPair) {
    for (int64_t i = 0; i < kPair; ++i) keys[d * tile_tokens + i] = ToCache(key[d + i], T{});
  }
  for (int64_t d = 0; d < shape.head_dim; ++d) values[d * kPair] = ToCache(value[d], T{});
}

template <typename In, typename T>
void AppendTyped(const KvLayerView& kv, int64_t slot, const In* keys, const In* values) {
  const KvShape& shape = kv.shape;
  for (int64_t h = 0; h < shape.num_kv_heads; ++h) {
    T* head = static_cast<T*>(kv.data) + KvHeadOffset(shape, slot / shape.block_size, h);
    AppendHead(shape, slot % shape.block_size, keys + h * shape.head_dim, values + h * shape.head_dim, head);
  }
}

template <typename In>
void AppendIn(const KvLayerView& kv, int64_t slot, const void* keys, const void* values) {
  const In* k = static_cast<const In*>(keys);
  const In* v = static_cast<const In*>(values);
  if (kv.shape.dtype == DType::kF32) {
    AppendTyped<In, float>(kv, slot, k, v);
  } else {
    AppendTyped<In, bf16_t>(kv, slot, k, v);
  }
}

}  // namespace

void AppendToken(const KvLayerView& kv, int32_t slot, const void* keys, const void* values, DType dtype) {
  if (slot < 0) return;
  TANDEM_CHECK(slot < kv.num_blocks * kv.shape.block_size, "slot {} of {} blocks of {} tokens", slot,
               kv.num_blocks, kv.shape.block_size);
  if (dtype == DType::kF32) {
    AppendIn<float>(kv, slot, keys, values);
  } else {
    AppendIn<bf16_t>(kv, slot, keys, values);
  }
}

void HostOps::AppendKv(Stream& stream, const AppendKvArgs& args) {
  CheckKvShape(args.kv);
  const KvShape& shape = args.kv.shape;
  TANDEM_CHECK(args.qkv.cols == (args.num_heads + 2 * shape.num_kv_heads) * shape.head_dim &&
                   (args.qkv.dtype == DType::kF32 || args.qkv.dtype == DType::kBF16) && args.slots != nullptr,
               "append_kv: qkv [{}, {}] {}, {} heads, {} kv heads of {}", args.qkv.rows, args.qkv.cols,
               DTypeName(args.qkv.dtype), args.num_heads, shape.num_kv_heads, shape.head_dim);
  AsHostStream(stream).Enqueue([args](ComputePool& pool) {
    const int64_t kv_width = args.kv.shape.num_kv_heads * args.kv.shape.head_dim;
    const MatrixView keys = args.qkv.Columns(args.num_heads * args.kv.shape.head_dim, kv_width);
    const MatrixView values = args.qkv.Columns(args.num_heads * args.kv.shape.head_dim + kv_width, kv_width);
    ForEachRow(pool, args.qkv.rows, 4 * kv_width, [&](int64_t row) {
      AppendToken(args.kv, args.slots[row], keys.RowData(row), values.RowData(row), args.qkv.dtype);
    });
  });
}

}  // namespace tandem
