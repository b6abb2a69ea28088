#include "cpu_attention/kv_block.h"

#include "base/check.h"

namespace tandem {

void CheckKvShape(const KvLayerView& kv) {
  const KvShape& shape = kv.shape;
  TANDEM_CHECK(shape.format.is_coded() || IsFloatType(shape.plain_dtype()), "kv cache of {}",
               KvFormatName(shape.format));
  TANDEM_CHECK(!shape.format.is_coded() || shape.head_dim <= kMaxCodedHeadDim, "codes of heads of {}",
               shape.head_dim);
  TANDEM_CHECK(shape.block_size > 0 && shape.block_size % 16 == 0 && shape.head_dim > 0 &&
                   shape.head_dim % 16 == 0 && shape.num_kv_heads > 0,
               "kv blocks of {} tokens, {} heads of {}", shape.block_size, shape.num_kv_heads,
               shape.head_dim);
}

bool RowsGoWith(DType rows, const KvFormat& format) {
  if (!IsFloatType(rows)) return false;
  return rows == DType::kF32 || format.is_coded() || format.is_plain(rows);
}

}  // namespace tandem
