#include "ops/elementwise.h"

#include "base/check.h"

namespace tandem {

void CheckAppends(const QkvPrepareArgs& args) {
  const KvShape* first = nullptr;
  int64_t end = 0;
  for (const KvRows& append : args.appends) {
    if (append.num_rows == 0) continue;
    const KvShape& shape = append.kv.shape;
    TANDEM_CHECK(
        append.row_begin >= end && append.num_rows > 0 && append.row_begin + append.num_rows <= args.qkv.rows,
        "qkv_prepare: appends {} rows from {} of {}, after {}", append.num_rows, append.row_begin,
        args.qkv.rows, end);
    end = append.row_begin + append.num_rows;
    TANDEM_CHECK(append.kv.data != nullptr && args.slots != nullptr, "qkv_prepare: nowhere to append to");
    TANDEM_CHECK(shape.num_kv_heads == args.num_kv_heads && shape.head_dim == args.head_dim,
                 "qkv_prepare: {} kv heads of {}, cache of {} heads of {}", args.num_kv_heads, args.head_dim,
                 shape.num_kv_heads, shape.head_dim);
    if (first == nullptr) first = &shape;
    TANDEM_CHECK(shape.format == first->format && shape.block_size == first->block_size,
                 "qkv_prepare: caches of {} and {}, blocks of {} and {}", KvFormatName(first->format),
                 KvFormatName(shape.format), first->block_size, shape.block_size);
  }
}

}  // namespace tandem
