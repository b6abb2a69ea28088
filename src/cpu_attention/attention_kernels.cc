#include "cpu_attention/attention_kernels.h"

#include <fmt/format.h>

#include "base/check.h"

namespace tandem {

void SetKv(const KvLayerView& kv, int64_t first_head, int64_t num_heads, AttentionRows* rows) {
  const int64_t part_heads = kv.heads_per_part > 0 ? kv.heads_per_part : kv.shape.num_kv_heads;
  TANDEM_CHECK(first_head / part_heads == (first_head + num_heads - 1) / part_heads,
               "heads [{}, +{}) are in several parts of {}", first_head, num_heads, part_heads);
  rows->kv_dtype = kv.shape.format.k_type;
  rows->block_size = kv.shape.block_size;
  rows->head_dim = kv.shape.head_dim;
  rows->num_kv_heads = num_heads;
  rows->kv = kv.Head(0, first_head);
  rows->block_stride_bytes = part_heads * static_cast<int64_t>(kv.shape.HeadBytes());
}

std::string DescribeFetch(const AttentionFetch& fetch) {
  return fmt::format("{}, {} ahead{}", FetchLevelName(fetch.level),
                     fetch.half_piece_ahead ? "half a piece" : "a piece",
                     fetch.every_second_line ? ", every second line first" : "");
}

const AttentionKernels& AttentionKernelsFor(CpuIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case CpuIsa::kAmx:
      return AttentionKernelsAmx();
    case CpuIsa::kAvx512Ymm:
      return AttentionKernelsAvx512Ymm();
    case CpuIsa::kAvx512Bf16:
      return AttentionKernelsAvx512Bf16();
    case CpuIsa::kAvx512:
      return AttentionKernelsAvx512();
    case CpuIsa::kAvx2:
      return AttentionKernelsAvx2();
    default:
      break;
  }
#elif defined(__aarch64__)
  switch (isa) {
    case CpuIsa::kNeonBf16:
      return AttentionKernelsNeonBf16();
    case CpuIsa::kNeonDot:
      return AttentionKernelsNeonDot();
    case CpuIsa::kNeon:
      return AttentionKernelsNeon();
    default:
      break;
  }
#endif
  static_cast<void>(isa);
  return AttentionKernelsPortable();
}

}  // namespace tandem
