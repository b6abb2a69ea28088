// What CPU kernels are used for, and what was chosen for that use.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/kv_layout.h"
#include "cpu_attention/attention_fetch.h"
#include "ops/host/linear/linear_kernels.h"
#include "simd/cpu_isa.h"

namespace tandem {

struct AttentionUse {
  int num_threads = 1;            // at the same time
  DType kv_dtype = DType::kBF16;  // of KvFormat::Of
  int64_t block_size = 32;
  int64_t head_dim = 0;
  int64_t group_size = 1;  // query heads of a kv head
  int64_t span_heads = 1;  // kv heads that a thread walks through block by block
  // The instruction set is open: decode attention over the cpu tier alone, in 16 bits. Where prefills run on
  // the same kernels, whose results decides must not differ from, the arithmetic counts and it is the best
  // that there is; at fp32 all strategies are to give the same tokens.
  bool any_isa = false;
  bool operator==(const AttentionUse&) const = default;
};

struct AttentionChoice {
  CpuIsa isa = BestCpuIsa();
  AttentionFetch fetch;
  // Rows for which what they share is read at once, at most; 1: where each reads its own faster.
  int64_t most_readers = kRowsPerGroup;
  double speedup = 1;  // of isa and fetch over the default, as measured
  bool operator==(const AttentionChoice&) const = default;
};

struct ProductUse {
  int num_threads = 1;
  DType dtype = DType::kBF16;  // of the weights
  bool operator==(const ProductUse&) const = default;
};

struct ProductChoice {
  ProductFetch fetch;
  double speedup = 1;  // over the default, as measured
  bool operator==(const ProductChoice&) const = default;
};

}  // namespace tandem
