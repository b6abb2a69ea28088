// What the steps over a tile work on. Compiled once an instruction set (see simd.h).
#pragma once

#include "cpu_attention/attention_softmax.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

// One head's state and one tile's working memory.
struct Workspace {
  float* max = nullptr;        // [num_queries]
  float* sum_lanes = nullptr;  // [num_queries][kLanes]
  float* acc = nullptr;        // [num_queries][head_dim]
  float* alpha = nullptr;      // [num_queries], rounded up to vectors: what the tile multiplies acc with
  float* scores = nullptr;     // [num_queries][kMaxTileTokens]

  // At a query; alpha is what a tile makes of its own queries.
  TANDEM_SIMD_INLINE Workspace From(int64_t query, int64_t head_dim) const {
    return {max + query, sum_lanes + query * kLanes, acc + query * head_dim, alpha,
            scores + query * kMaxTileTokens};
  }
};

struct TileOf {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  int64_t num_tokens = 0;
  // What is fetched meanwhile, half of the lines from each. Null: nothing.
  const std::byte* first_fetch = nullptr;
  const std::byte* second_fetch = nullptr;
};

// The queries of a head, in the forms in which the kernels for a type read them.
template <typename T>
struct HeadQueries;

TANDEM_SIMD_INLINE int64_t DivideUp(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace
}  // namespace tandem
