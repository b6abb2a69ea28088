#include "base/check.h"
#include "cpu_attention/append_token.h"
#include "cpu_attention/kv_block.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/row_tasks.h"

namespace tandem {
namespace {

void CheckQkvPrepare(const QkvPrepareArgs& args) {
  TANDEM_CHECK(args.num_heads > 0 && args.num_kv_heads > 0 && args.head_dim > 0 && args.head_dim % 2 == 0 &&
                   args.qkv.cols == (args.num_heads + 2 * args.num_kv_heads) * args.head_dim &&
                   (args.qkv.dtype == DType::kF32 || args.qkv.dtype == DType::kBF16),
               "qkv_prepare: qkv [{}, {}] {}, {} heads, {} kv heads of {}", args.qkv.rows, args.qkv.cols,
               DTypeName(args.qkv.dtype), args.num_heads, args.num_kv_heads, args.head_dim);
  TANDEM_CHECK(args.rope_table != nullptr && args.positions != nullptr, "qkv_prepare: no positions");
  CheckAppends(args);
  for (const KvRows& append : args.appends) {
    if (append.num_rows > 0) CheckKvShape(append.kv);
  }
}

// nullptr: nothing of the row is appended.
const KvRows* AppendOf(const QkvPrepareArgs& args, int64_t row) {
  for (const KvRows& append : args.appends) {
    if (append.contains(row)) return &append;
  }
  return nullptr;
}

void PrepareRow(const QkvPrepareArgs& args, const RowKernels& kernels, int64_t row) {
  const float* cos_sin = args.rope_table + static_cast<int64_t>(args.positions[row]) * args.head_dim;
  const int64_t num_rotated = args.num_heads + args.num_kv_heads;
  for (int64_t head = 0; head < num_rotated; ++head) {
    const float* norm_weight = head < args.num_heads ? args.q_norm_weight : args.k_norm_weight;
    kernels.norm_rope(args.qkv.Columns(head * args.head_dim, args.head_dim).RowData(row), args.qkv.dtype,
                      args.head_dim, norm_weight, args.norm_eps, cos_sin);
  }
  const KvRows* append = AppendOf(args, row);
  if (append == nullptr) return;
  const int64_t kv_width = args.num_kv_heads * args.head_dim;
  AppendToken(append->kv, args.slots[row], 0, args.num_kv_heads,
              args.qkv.Columns(args.num_heads * args.head_dim, kv_width).RowData(row),
              args.qkv.Columns(args.num_heads * args.head_dim + kv_width, kv_width).RowData(row),
              args.qkv.dtype);
}

}  // namespace

void HostOps::QkvPrepare(Stream& stream, const QkvPrepareArgs& args) {
  CheckQkvPrepare(args);
  AsHostStream(stream).Enqueue([args, &row_kernels = row_](ComputePool& pool) {
    ForEachRow(pool, args.qkv.rows, args.qkv.cols, [&](int64_t row) { PrepareRow(args, row_kernels, row); });
  });
}

}  // namespace tandem
