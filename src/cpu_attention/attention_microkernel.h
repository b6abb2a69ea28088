// The attention kernel: partitions and their merging, queries in, results out. Compiled once an instruction
// set (see simd.h).
#pragma once

#include <cstring>
#include <type_traits>

#include "cpu_attention/attention_kernels.h"
#include "cpu_attention/attention_partition.h"

namespace tandem {
namespace {  // NOLINT(google-build-namespaces): compiled differently in each file that includes it

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
    float factors[kLanes] = {};
    factors[0] = max[i] - new_max;
    factors[1] = next_max[i] - new_max;
    Store(factors, Exp2(Load(factors), factors));
    const float factor = empty ? 0.0F : factors[0];
    const float next_factor = empty ? 1.0F : factors[1];
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      Store(acc + d, Fma(Load(next_acc + d), Set(next_factor), Mul(Load(acc + d), Set(factor))));
    }
    sum[i] = sum[i] * factor + next_sum[i] * next_factor;
    max[i] = new_max;
  }
}

// From [row][head][query of the group] to [head][row][query of the group].
template <typename From, typename To>
void CopyQueries(const AttentionRows& rows, To* to) {
  const int64_t width = rows.group_size * rows.head_dim;
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    const int64_t number = rows.row_numbers != nullptr ? rows.row_numbers[row] : row;
    const From* from = static_cast<const From*>(rows.q.data) + number * rows.q.row_stride;
    for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
      To* head_to = to + (head * rows.num_rows + row) * width;
      for (int64_t i = 0; i < width; i += kLanes) StoreRow(head_to + i, LoadRow(from + head * width + i));
    }
  }
}

// From [head][query][step] to [head][step][query].
template <typename Step>
void TransposeQueries(const Step* from, int64_t num_heads, int64_t num_queries, int64_t num_steps, Step* to) {
  for (int64_t head = 0; head < num_heads; ++head) {
    for (int64_t i = 0; i < num_queries; ++i) {
      for (int64_t step = 0; step < num_steps; ++step)
        to[step * num_queries + i] = from[i * num_steps + step];
    }
    from += num_queries * num_steps;
    to += num_queries * num_steps;
  }
}

template <int64_t kBytes>
struct StepBits {
  using Type = uint32_t;
};
template <>
struct StepBits<8> {
  using Type = uint64_t;
};

// q: the floats at the start of scratch. Returns what the kernels for T read; *used: floats of scratch that
// this takes.
template <typename T>
HeadQueries<T> PrepareQueries(const AttentionRows& rows, float* scratch, int64_t* used) {
  const int64_t n = rows.num_queries();
  const int64_t q_size = rows.num_kv_heads * n * rows.head_dim;
  // Of floats, int8 makes its own numbers.
  using Row = std::conditional_t<std::is_same_v<T, Int8Kv>, float, Operand<T>>;
  auto* q_rows = reinterpret_cast<Row*>(scratch);
  if (rows.q.dtype == DType::kF32) {
    CopyQueries<float>(rows, q_rows);
  } else if (rows.q.dtype == DType::kBF16) {
    CopyQueries<uint16_t>(rows, q_rows);
  } else {
    CopyQueries<Fp16>(rows, q_rows);
  }
  if constexpr (std::is_same_v<T, Int8Kv>) {
    *used = Int8QueryScratch(rows.num_kv_heads * n, rows.head_dim);
    return PrepareInt8Queries(scratch, rows.num_kv_heads * n, n, rows.head_dim);
  } else {
    using Step = typename StepBits<static_cast<int64_t>(sizeof(Operand<T>)) * kQueryDepth<T>>::Type;
    auto* q_steps = reinterpret_cast<Operand<T>*>(scratch + q_size);
    TransposeQueries(reinterpret_cast<const Step*>(q_rows), rows.num_kv_heads, n,
                     rows.head_dim / kQueryDepth<T>, reinterpret_cast<Step*>(q_steps));
    *used = 2 * q_size;
    HeadQueries<T> q;
    q.steps = {q_steps, n * kQueryDepth<T>};
    q.rows = q_rows;
    return q;
  }
}

// A wide state, of all rows, becomes one of each row, at states[row] + offset: [head]{state of its queries}.
TANDEM_SIMD_INLINE void SplitState(const AttentionRows& rows, const float* wide, float* const* states,
                                   int64_t offset) {
  const int64_t n = rows.num_queries();
  const int64_t group = rows.group_size;
  const int64_t head_dim = rows.head_dim;
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    float* to = states[row] + offset;
    const float* from = wide;
    for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
      const int64_t first = row * group;
      std::memcpy(to, from + first, static_cast<size_t>(group) * sizeof(float));
      std::memcpy(to + group, from + n + first, static_cast<size_t>(group) * sizeof(float));
      std::memcpy(to + 2 * group, from + 2 * n + first * head_dim,
                  static_cast<size_t>(group * head_dim) * sizeof(float));
      from += AttentionStateSize(n, head_dim);
      to += AttentionStateSize(group, head_dim);
    }
  }
}

// What `run` and `run_apart` of AttentionKernels are asked for.
struct Partitions {
  int64_t first = 0;
  int64_t end = 0;
  float* merged = nullptr;         // null: apart
  float* const* states = nullptr;  // apart, of each row
  int64_t partition_stride = 0;
};

template <typename T, FetchLevel kLevel>
void RunPartitions(const AttentionRows& rows, const Partitions& partitions, float* scratch) {
  const int64_t head_dim = rows.head_dim;
  const int64_t n = rows.num_queries();
  const int64_t state_size = AttentionStateSize(n, head_dim);
  int64_t used = 0;
  const HeadQueries<Attended<T>> q = PrepareQueries<Attended<T>>(rows, scratch, &used);
  Workspace work;
  work.scores = scratch + used;
  work.alpha = work.scores + n * kMaxTileTokens;
  float* lanes = work.alpha + (n + 15) / 16 * 16;
  float* partial = lanes + rows.num_kv_heads * n * kLanes;
  AttentionRows at = rows;
  for (int64_t partition = partitions.first; partition < partitions.end; ++partition) {
    const int64_t offset = (partition - partitions.first) * partitions.partition_stride;
    float* to = partial;
    if (partitions.merged != nullptr && partition == partitions.first) to = partitions.merged;
    // One row's wide state is its own.
    if (partitions.merged == nullptr && rows.num_rows == 1) to = partitions.states[0] + offset;
    at.next_kv = rows.next_kv;
    if (partition + 1 < partitions.end) {
      const int64_t next = (partition + 1) * kPartitionTokens / rows.block_size;
      at.next_kv = rows.kv + rows.block_table[next] * rows.block_stride_bytes;
    }
    RunPartition<T, kLevel>(at, work, q, partition, {to, lanes, n, head_dim});
    if (to != partial) continue;
    if (partitions.merged == nullptr) {
      SplitState(rows, partial, partitions.states, offset);
      continue;
    }
    for (int64_t head = 0; head < rows.num_kv_heads; ++head)
      MergeStates(partitions.merged + head * state_size, partial + head * state_size, n, head_dim);
  }
}

template <typename T>
void RunFetching(const AttentionRows& rows, const Partitions& partitions, float* scratch) {
  switch (rows.fetch.level) {
    case FetchLevel::kL1:
      return RunPartitions<T, FetchLevel::kL1>(rows, partitions, scratch);
    case FetchLevel::kL2:
      return RunPartitions<T, FetchLevel::kL2>(rows, partitions, scratch);
    case FetchLevel::kNonTemporal:
      return RunPartitions<T, FetchLevel::kNonTemporal>(rows, partitions, scratch);
  }
}

void RunOfType(const AttentionRows& rows, const Partitions& partitions, float* scratch) {
  if (rows.kv_dtype == DType::kF32) {
    RunFetching<float>(rows, partitions, scratch);
  } else if (rows.kv_dtype == DType::kF16) {
    RunFetching<Fp16>(rows, partitions, scratch);
  } else if (rows.kv_dtype == DType::kI8) {
    RunFetching<Int8Kv>(rows, partitions, scratch);
  } else if (rows.kv_dtype == DType::kF8E4M3) {
    RunFetching<Fp8Kv>(rows, partitions, scratch);
  } else {
    RunFetching<uint16_t>(rows, partitions, scratch);
  }
#if defined(__AMX_BF16__)
  // Tiles in use make every task switch dearer.
  if (UsesTiles(rows)) _tile_release();
#endif
}

void RunMerged(const AttentionRows& rows, int64_t first_partition, int64_t end_partition, float* state,
               float* scratch) {
  RunOfType(rows, {.first = first_partition, .end = end_partition, .merged = state}, scratch);
}

void RunApart(const AttentionRows& rows, int64_t first_partition, int64_t end_partition, float* const* states,
              int64_t partition_stride, float* scratch) {
  RunOfType(rows,
            {.first = first_partition,
             .end = end_partition,
             .states = states,
             .partition_stride = partition_stride},
            scratch);
}

template <typename Out>
void WriteRows(const AttentionRows& rows, const float* states) {
  const int64_t head_dim = rows.head_dim;
  const int64_t group = rows.group_size;
  const int64_t n = rows.num_queries();
  for (int64_t head = 0; head < rows.num_kv_heads; ++head) {
    const float* state = states + head * n * (head_dim + 2);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = i / group;
      Out* out = static_cast<Out*>(rows.out.data) + row * rows.out.row_stride +
                 (head * group + i - row * group) * head_dim;
      const F32V sum = Set(state[n + i]);
      const float* acc = state + 2 * n + i * head_dim;
      for (int64_t d = 0; d < head_dim; d += kLanes) StoreRow(out + d, Div(Load(acc + d), sum));
      if (rows.lse != nullptr) rows.lse[head * group + i] = state[i] * kLn2 + __builtin_logf(state[n + i]);
    }
  }
}

void FinishRows(const AttentionRows& rows, const float* states) {
  if (rows.out.dtype == DType::kF32) {
    WriteRows<float>(rows, states);
  } else if (rows.out.dtype == DType::kBF16) {
    WriteRows<uint16_t>(rows, states);
  } else {
    WriteRows<Fp16>(rows, states);
  }
}

// Fetches as far ahead as the kernels do; one chain of additions a vector of 512 bytes.
float ReadBytes(const std::byte* p, int64_t size_bytes) {
  constexpr int64_t kStepBytes = 512;
  constexpr int kVectors = kStepBytes / 4 / kLanes;
  constexpr int64_t kFetchBytes = 16 << 10;
  F32V sums[8];
  for (F32V& sum : sums) sum = Zero();
  for (int64_t offset = 0; offset < size_bytes; offset += kStepBytes) {
    const auto* values = reinterpret_cast<const float*>(p + offset);
    const int64_t fetch = offset + kFetchBytes < size_bytes ? offset + kFetchBytes : offset;
#pragma GCC unroll 8
    for (int64_t line = 0; line < kStepBytes; line += 64) __builtin_prefetch(p + fetch + line, 0, 2);
#pragma GCC unroll 32
    for (int v = 0; v < kVectors; ++v) sums[v % 8] = Add(sums[v % 8], Load(values + v * kLanes));
  }
  F32V total = Zero();
  for (const F32V& sum : sums) total = Add(total, sum);
  return SumLanes(total);
}

constexpr AttentionKernels kAttentionKernels = {
    .run = RunMerged,
    .run_apart = RunApart,
    .merge = MergeStates,
    .finish = FinishRows,
    .read = ReadBytes,
};

}  // namespace
}  // namespace tandem
