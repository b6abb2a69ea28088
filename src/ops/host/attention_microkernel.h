// The attention kernel, compiled once an instruction set (see simd.h).
#pragma once

#include "ops/host/attention_kernels.h"
#include "ops/host/multiply_add.h"
#include "ops/host/simd.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

constexpr int64_t kMaxTileTokens = 32;

struct TileRange {  // tokens [begin, end) of a tile
  int64_t begin = 0;
  int64_t end = 0;
};

// One partition's working memory, for num_queries queries.
struct Workspace {
  float* max = nullptr;     // [num_queries]
  float* sum = nullptr;     // [num_queries]
  float* acc = nullptr;     // [num_queries][head_dim]
  float* alpha = nullptr;   // [num_queries]: what the tile multiplies acc with
  float* scores = nullptr;  // [num_queries][kMaxTileTokens]
};

// T: element type of the cache. Values of x advance with kStepDepth elements a step.
template <typename T>
constexpr int64_t kStepDepth = sizeof(T) == 2 ? 2 : 1;

// scores[kQueries][tile_tokens] = q K^T for kVectors vectors of tokens.
template <typename T, int kQueries, int kVectors>
void ScoreKernel(const T* q, int64_t head_dim, const T* keys, int64_t tile_tokens, float* scores) {
  Accumulators<kQueries, kVectors> acc;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc.value[i][v] = Zero();
  }
  for (int64_t d = 0; d < head_dim; d += kStepDepth<T>) {
    Step(acc, q + d, head_dim, keys);
    keys += tile_tokens * kStepDepth<T>;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(scores + i * kMaxTileTokens + v * kLanes, acc.value[i][v]);
  }
}

template <typename T, int kVectors>
void ScoreVectors(const T* q, int64_t num_queries, int64_t head_dim, const T* keys, int64_t tile_tokens,
                  float* scores) {
  while (num_queries > 0) {
    const int64_t left = num_queries;
    int64_t done = 0;
    if (left >= 4) {
      ScoreKernel<T, 4, kVectors>(q, head_dim, keys, tile_tokens, scores);
      done = 4;
    } else if (left == 3) {
      ScoreKernel<T, 3, kVectors>(q, head_dim, keys, tile_tokens, scores);
      done = 3;
    } else if (left == 2) {
      ScoreKernel<T, 2, kVectors>(q, head_dim, keys, tile_tokens, scores);
      done = 2;
    } else {
      ScoreKernel<T, 1, kVectors>(q, head_dim, keys, tile_tokens, scores);
      done = 1;
    }
    q += done * head_dim;
    scores += done * kMaxTileTokens;
    num_queries -= done;
  }
}

template <typename T>
void Scores(const T* q, int64_t num_queries, int64_t head_dim, const T* keys, int64_t tile_tokens,
            float* scores) {
  for (int64_t token = 0; token < tile_tokens;) {
    const T* from = keys + token * kStepDepth<T>;
    if (token + 2 * kLanes <= tile_tokens) {
      ScoreVectors<T, 2>(q, num_queries, head_dim, from, tile_tokens, scores + token);
      token += 2 * kLanes;
    } else {
      ScoreVectors<T, 1>(q, num_queries, head_dim, from, tile_tokens, scores + token);
      token += kLanes;
    }
  }
}

TANDEM_SIMD_INLINE float ScalarExp(float x) {
  float values[kLanes];
  Store(values, Exp(Set(x)));
  return values[0];
}

TANDEM_SIMD_INLINE F32V RoundedTo(F32V p, const float* /*cache type*/) {
  return p;
}
TANDEM_SIMD_INLINE F32V RoundedTo(F32V p, const uint16_t* /*cache type*/) {
  uint16_t rounded[kLanes];
  StoreBf16(rounded, p);
  return LoadBf16(rounded);
}

// Scores become weights in the cache's type (in place: T[kMaxTileTokens] at the start of the query's scores),
// and max, sum and alpha advance. The sum is that of the rounded weights: it divides what they multiplied.
template <typename T>
void Softmax(float* scores, int64_t tile_tokens, float scale, TileRange range, float* max, float* sum,
             float* alpha) {
  constexpr float kNegativeInfinity = -__builtin_inff();
  // Also what may be garbage: keys that were never written.
  for (int64_t t = 0; t < range.begin; ++t) scores[t] = kNegativeInfinity;
  for (int64_t t = range.end; t < tile_tokens; ++t) scores[t] = kNegativeInfinity;
  F32V top = Set(kNegativeInfinity);
  for (int64_t t = 0; t < tile_tokens; t += kLanes) {
    const F32V s = Mul(Load(scores + t), Set(scale));
    Store(scores + t, s);
    top = Max(s, top);
  }
  const float tile_max = MaxLane(top);
  const float new_max = tile_max > *max ? tile_max : *max;
  *alpha = ScalarExp(*max - new_max);
  *max = new_max;
  F32V total = Zero();
  T* weights = reinterpret_cast<T*>(scores);
  for (int64_t t = 0; t < tile_tokens; t += kLanes) {
    const F32V p = RoundedTo(Exp(Sub(Load(scores + t), Set(new_max))), weights);
    total = Add(total, p);
    StoreRow(weights + t, p);
  }
  *sum = *sum * *alpha + SumLanes(total);
}

// acc = acc * alpha + weights V for kQueries queries and kVectors vectors of the head, tokens of range.
template <typename T, int kQueries, int kVectors>
void ValueKernel(const float* scores, TileRange range, const T* values, int64_t head_dim, const float* alpha,
                 float* acc_rows) {
  Accumulators<kQueries, kVectors> acc;
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
    const F32V factor = Set(alpha[i]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc.value[i][v] = Mul(Load(acc_rows + i * head_dim + v * kLanes), factor);
    }
  }
  const T* weights = reinterpret_cast<const T*>(scores);
  constexpr int64_t kWeightStride = kMaxTileTokens * kStepDepth<T>;
  int64_t token = range.begin;
  if constexpr (sizeof(T) == 2) {
    // V of the other token of a pair may be garbage, and its weight of zero would not remove a NaN.
    const auto masked_step = [&](int64_t pair_token, uint32_t mask) __attribute__((always_inline)) {
      PairV pair_values[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        pair_values[v] = AndPairs(LoadPairs(values + pair_token * head_dim + v * kLanes * 2), SetPair(mask));
      }
      for (int i = 0; i < kQueries; ++i) {
        const PairV p = SetPair(PairAt(weights + i * kWeightStride + pair_token));
        for (int v = 0; v < kVectors; ++v) acc.value[i][v] = DotPairs(acc.value[i][v], pair_values[v], p);
      }
    };
    if (token % 2 == 1) {
      masked_step(token - 1, 0xffff0000U);
      ++token;
    }
    for (; token + 2 <= range.end; token += 2) {
      Step(acc, weights + token, kWeightStride, values + token * head_dim);
    }
    if (token < range.end) masked_step(token, 0x0000ffffU);
  } else {
    for (; token < range.end; ++token) {
      Step(acc, weights + token, kWeightStride, values + token * head_dim);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(acc_rows + i * head_dim + v * kLanes, acc.value[i][v]);
  }
}

template <typename T, int kQueries>
void ValueColumns(const float* scores, TileRange range, const T* values, int64_t head_dim, const float* alpha,
                  float* acc) {
  int64_t d = 0;
  for (; d + kGroupVectors * kLanes <= head_dim; d += kGroupVectors * kLanes) {
    ValueKernel<T, kQueries, kGroupVectors>(scores, range, values + d * kStepDepth<T>, head_dim, alpha,
                                            acc + d);
  }
  for (; d < head_dim; d += kLanes) {
    ValueKernel<T, kQueries, 1>(scores, range, values + d * kStepDepth<T>, head_dim, alpha, acc + d);
  }
}

// One tile for queries [first, first + count), all of which see `range` of it.
template <typename T>
void Tile(const AttentionRows& rows, const Workspace& work, const T* q, int64_t first, int64_t count,
          const T* keys, const T* values, int64_t tile_tokens, TileRange range) {
  const int64_t head_dim = rows.kv.shape.head_dim;
  float* scores = work.scores + first * kMaxTileTokens;
  Scores(q + first * head_dim, count, head_dim, keys, tile_tokens, scores);
  for (int64_t i = 0; i < count; ++i) {
    Softmax<T>(scores + i * kMaxTileTokens, tile_tokens, rows.scale, range, work.max + first + i,
               work.sum + first + i, work.alpha + first + i);
  }
  for (int64_t i = 0; i < count;) {
    const int64_t left = count - i;
    const float* weights = scores + i * kMaxTileTokens;
    const float* alpha = work.alpha + first + i;
    float* acc = work.acc + (first + i) * head_dim;
    if (left >= 4) {
      ValueColumns<T, 4>(weights, range, values, head_dim, alpha, acc);
      i += 4;
    } else if (left == 3) {
      ValueColumns<T, 3>(weights, range, values, head_dim, alpha, acc);
      i += 3;
    } else if (left == 2) {
      ValueColumns<T, 2>(weights, range, values, head_dim, alpha, acc);
      i += 2;
    } else {
      ValueColumns<T, 1>(weights, range, values, head_dim, alpha, acc);
      i += 1;
    }
  }
}

// What row `row` sees of the tile that starts at key `tile_begin`; empty if begin >= end.
TANDEM_SIMD_INLINE TileRange VisibleRange(const AttentionRows& rows, int64_t row, int64_t tile_begin,
                                          int64_t tile_tokens) {
  const int64_t position = rows.first_position + row;
  const int64_t first_key = rows.window > 0 ? position - rows.window + 1 : 0;
  TileRange range;
  range.begin = first_key > tile_begin ? first_key - tile_begin : 0;
  range.end = position + 1 - tile_begin < tile_tokens ? position + 1 - tile_begin : tile_tokens;
  return range;
}

template <typename T>
void RunPartition(const AttentionRows& rows, const Workspace& work, const T* q, int64_t partition) {
  const KvShape& shape = rows.kv.shape;
  const int64_t tile_tokens = shape.block_size % 32 == 0 ? 32 : 16;
  const int64_t head_elements = shape.block_size * shape.head_dim;
  const int64_t group = rows.group_size;
  for (int64_t i = 0; i < rows.num_queries(); ++i) {
    work.max[i] = -__builtin_inff();
    work.sum[i] = 0.0F;
    for (int64_t d = 0; d < shape.head_dim; ++d) work.acc[i * shape.head_dim + d] = 0.0F;
  }
  int64_t begin = rows.begin_key() / tile_tokens * tile_tokens;
  if (begin < partition * kPartitionTokens) begin = partition * kPartitionTokens;
  int64_t end = (partition + 1) * kPartitionTokens;
  if (end > rows.end_key()) end = rows.end_key();
  for (int64_t key = begin; key < end; key += tile_tokens) {
    const int64_t block_index = key / shape.block_size;
    const T* head = static_cast<const T*>(rows.kv.data) +
                    (rows.block_table[block_index] * shape.num_kv_heads + rows.kv_head) * 2 * head_elements;
    const int64_t offset = (key - block_index * shape.block_size) * shape.head_dim;
    if (offset == 0 && (block_index + 1) * shape.block_size < rows.end_key()) {
      // A few queries only wait for memory: fetch the next block while this one is computed.
      const T* next =
          static_cast<const T*>(rows.kv.data) +
          (rows.block_table[block_index + 1] * shape.num_kv_heads + rows.kv_head) * 2 * head_elements;
      for (int64_t i = 0; i < 2 * head_elements; i += 64 / static_cast<int64_t>(sizeof(T))) {
        __builtin_prefetch(next + i, 0, 2);
      }
    }
    const T* keys = head + offset;
    const T* values = head + head_elements + offset;
    for (int64_t row = 0; row < rows.num_rows;) {
      const TileRange range = VisibleRange(rows, row, key, tile_tokens);
      int64_t num_rows = 1;
      if (range.begin == 0 && range.end == tile_tokens) {
        while (row + num_rows < rows.num_rows) {
          const TileRange other = VisibleRange(rows, row + num_rows, key, tile_tokens);
          if (other.begin != 0 || other.end != tile_tokens) break;
          ++num_rows;
        }
      }
      if (range.begin < range.end) {
        Tile<T>(rows, work, q, row * group, num_rows * group, keys, values, tile_tokens, range);
      }
      row += num_rows;
    }
  }
}

void MergeStates(float* state, const float* next, int64_t num_queries, int64_t head_dim) {
  float* max = state;
  float* sum = state + num_queries;
  const float* next_max = next;
  const float* next_sum = next + num_queries;
  for (int64_t i = 0; i < num_queries; ++i) {
    if (next_sum[i] == 0.0F) continue;
    float* acc = state + 2 * num_queries + i * head_dim;
    const float* next_acc = next + 2 * num_queries + i * head_dim;
    const float new_max = next_max[i] > max[i] ? next_max[i] : max[i];
    const bool empty = sum[i] == 0.0F;
    const float factor = empty ? 0.0F : ScalarExp(max[i] - new_max);
    const float next_factor = empty ? 1.0F : ScalarExp(next_max[i] - new_max);
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      Store(acc + d, Fma(Load(next_acc + d), Set(next_factor), Mul(Load(acc + d), Set(factor))));
    }
    sum[i] = sum[i] * factor + next_sum[i] * next_factor;
    max[i] = new_max;
  }
}

template <typename Q, typename T>
void CopyQueries(const AttentionRows& rows, T* to) {
  const int64_t width = rows.group_size * rows.kv.shape.head_dim;
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const Q* from = static_cast<const Q*>(rows.q.data) + row * rows.q.row_stride;
    for (int64_t i = 0; i < width; i += kLanes) StoreRow(to + row * width + i, LoadRow(from + i));
  }
}

template <typename T>
void RunPartitions(const AttentionRows& rows, int64_t first_partition, int64_t end_partition, float* state,
                   float* scratch) {
  const int64_t head_dim = rows.kv.shape.head_dim;
  const int64_t n = rows.num_queries();
  T* q = reinterpret_cast<T*>(scratch);
  if (rows.q.dtype == DType::kF32) {
    CopyQueries<float>(rows, q);
  } else {
    CopyQueries<uint16_t>(rows, q);
  }
  float* rest = scratch + n * head_dim;
  Workspace work;
  work.scores = rest;
  work.alpha = rest + n * kMaxTileTokens;
  float* partial = work.alpha + n;
  for (int64_t partition = first_partition; partition < end_partition; ++partition) {
    float* to = partition == first_partition ? state : partial;
    work.max = to;
    work.sum = to + n;
    work.acc = to + 2 * n;
    RunPartition<T>(rows, work, q, partition);
    if (to != state) MergeStates(state, partial, n, head_dim);
  }
}

void RunAttention(const AttentionRows& rows, int64_t first_partition, int64_t end_partition, float* state,
                  float* scratch) {
  if (rows.kv.shape.dtype == DType::kF32) {
    RunPartitions<float>(rows, first_partition, end_partition, state, scratch);
  } else {
    RunPartitions<uint16_t>(rows, first_partition, end_partition, state, scratch);
  }
}

template <typename Out>
void WriteRows(const AttentionRows& rows, const float* state) {
  const int64_t head_dim = rows.kv.shape.head_dim;
  const int64_t n = rows.num_queries();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = i / rows.group_size;
    Out* out =
        static_cast<Out*>(rows.out.data) + row * rows.out.row_stride + (i - row * rows.group_size) * head_dim;
    const F32V sum = Set(state[n + i]);
    const float* acc = state + 2 * n + i * head_dim;
    for (int64_t d = 0; d < head_dim; d += kLanes) StoreRow(out + d, Div(Load(acc + d), sum));
  }
}

void FinishRows(const AttentionRows& rows, const float* state) {
  if (rows.out.dtype == DType::kF32) {
    WriteRows<float>(rows, state);
  } else {
    WriteRows<uint16_t>(rows, state);
  }
}

constexpr AttentionKernels kAttentionKernels = {
    .run = RunAttention,
    .merge = MergeStates,
    .finish = FinishRows,
};

}  // namespace
}  // namespace tandem
