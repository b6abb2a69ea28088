#include "cpu_attention/decode_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "cpu_attention/append_token.h"
#include "cpu_attention/kv_block.h"

namespace tandem {
namespace {

// An item takes at most this share of what one thread still has to do.
constexpr int64_t kItemsPerThread = 4;
// Below this, claiming and merging cost more than an idle thread: some microseconds of reading.
constexpr int64_t kMinItemBytes = 64 << 10;

float* ThreadScratch(int64_t num_floats) {
  thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < num_floats) scratch.resize(static_cast<size_t>(num_floats));
  return scratch.data();
}

}  // namespace

DecodePlan::DecodePlan(std::vector<DecodeSequence> sequences, const DecodeShape& shape, int num_threads)
    : sequences_(std::move(sequences)), shape_(shape) {
  const KvShape& kv = shape_.kv;
  TANDEM_CHECK(kv.num_kv_heads > 0 && shape_.num_heads > 0 && shape_.num_heads % kv.num_kv_heads == 0,
               "decode plan: {} heads, {} kv heads", shape_.num_heads, kv.num_kv_heads);
  group_size_ = shape_.num_heads / kv.num_kv_heads;
  state_size_ = AttentionStateSize(group_size_, kv.head_dim);
  for (const DecodeSequence& sequence : sequences_) {
    TANDEM_CHECK(
        sequence.context_len >= 1 &&
            static_cast<int64_t>(sequence.block_table.size()) * kv.block_size >= sequence.context_len,
        "decode plan: {} blocks of {} tokens, context {}", sequence.block_table.size(), kv.block_size,
        sequence.context_len);
  }
  std::vector<int32_t> order(sequences_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](int32_t row) {
    return sequences_[static_cast<size_t>(row)].context_len - first_key(row);
  };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return length(a) > length(b); });
  for (const int32_t row : order) kv_bytes_ += length(row) * kv.num_kv_heads * token_bytes();

  const int64_t heads_per_part = shape_.heads_per_part > 0 ? shape_.heads_per_part : kv.num_kv_heads;
  const int64_t num_parts = (kv.num_kv_heads + heads_per_part - 1) / heads_per_part;
  const int part_threads = std::max(1, num_threads / static_cast<int>(num_parts));
  for (int64_t head = 0; head < kv.num_kv_heads; head += heads_per_part) {
    CutPart(order, head, std::min(heads_per_part, kv.num_kv_heads - head), part_threads,
            &parts_.emplace_back());
  }
  counters_ = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(num_counters_));
}

int64_t DecodePlan::first_key(int64_t row) const {
  const int64_t context_len = sequences_[static_cast<size_t>(row)].context_len;
  return shape_.sliding_window > 0 ? std::max<int64_t>(0, context_len - shape_.sliding_window) : 0;
}

int64_t DecodePlan::item_bytes(int64_t part, int64_t item) const {
  const Item& work = parts_[static_cast<size_t>(part)][static_cast<size_t>(item)];
  const int64_t begin = std::max(first_key(work.row), work.first_partition * kPartitionTokens);
  const int64_t end =
      std::min(sequences_[static_cast<size_t>(work.row)].context_len, work.end_partition * kPartitionTokens);
  return (end - begin) * work.num_heads * token_bytes();
}

int64_t DecodePlan::token_bytes() const {
  return static_cast<int64_t>(shape_.kv.HeadBytes()) / shape_.kv.block_size;
}

void DecodePlan::CutPart(const std::vector<int32_t>& order, int64_t first_head, int64_t num_heads,
                         int num_threads, std::vector<Item>* items) {
  const int64_t all_heads_bytes = num_heads * token_bytes();  // of one token
  int64_t left_bytes = 0;
  for (const int32_t row : order) {
    left_bytes += (sequences_[static_cast<size_t>(row)].context_len - first_key(row)) * all_heads_bytes;
  }
  for (const int32_t row : order) {
    const int64_t begin = first_key(row);
    const int64_t end = sequences_[static_cast<size_t>(row)].context_len;
    const int64_t first_partition = begin / kPartitionTokens;
    const int64_t end_partition = (end - 1) / kPartitionTokens + 1;
    const size_t first_item = items->size();
    for (int64_t partition = first_partition; partition < end_partition;) {
      const int64_t target = std::max(kMinItemBytes, left_bytes / (kItemsPerThread * num_threads));
      const int64_t target_tokens = target / all_heads_bytes;
      const int64_t left_tokens = end - std::max(begin, partition * kPartitionTokens);
      // Half an item more is better than a very small one after it.
      const int64_t count = left_tokens <= target_tokens + target_tokens / 2
                                ? end_partition - partition
                                : std::max<int64_t>(1, target_tokens / kPartitionTokens);
      const int64_t tokens = std::min(end, (partition + count) * kPartitionTokens) -
                             std::max(begin, partition * kPartitionTokens);
      // Heads are only divided where a single partition is too much: long pieces are read faster.
      const int64_t pieces =
          count > 1 ? 1 : std::clamp<int64_t>(tokens * all_heads_bytes / target, 1, num_heads);
      const int64_t span = (num_heads + pieces - 1) / pieces;
      for (int64_t head = 0; head < num_heads; head += span) {
        items->push_back({.row = row,
                          .first_head = static_cast<int32_t>(first_head + head),
                          .num_heads = static_cast<int32_t>(std::min(span, num_heads - head)),
                          .join = -1,
                          .first_partition = partition,
                          .end_partition = partition + count});
      }
      left_bytes -= tokens * all_heads_bytes;
      partition += count;
    }
    if (items->back().first_partition == first_partition) continue;
    const int64_t num_partitions = end_partition - first_partition;
    Join join;
    join.first_head = static_cast<int32_t>(first_head);
    join.num_heads = static_cast<int32_t>(num_heads);
    join.first_partition = first_partition;
    join.num_partitions = num_partitions;
    join.state_offset = static_cast<int64_t>(states_.size());
    join.counter_offset = num_counters_;
    for (size_t i = first_item; i < items->size(); ++i)
      (*items)[i].join = static_cast<int32_t>(joins_.size());
    joins_.push_back(join);
    states_.resize(states_.size() + static_cast<size_t>(num_partitions * num_heads * state_size_));
    num_counters_ += num_heads;
  }
}

void DecodePlan::CheckLayer(const DecodeLayer& layer) const {
  CheckKvShape(layer.kv);
  const KvShape& kv = shape_.kv;
  const auto rows = static_cast<int64_t>(sequences_.size());
  TANDEM_CHECK(layer.kv.shape == kv && layer.kv.heads_per_part == shape_.heads_per_part,
               "decode layer: cache of another shape than the plan's");
  const int64_t width = shape_.num_heads * kv.head_dim;
  TANDEM_CHECK(
      layer.q.cols == width && layer.out.cols == width && layer.q.rows >= rows && layer.out.rows >= rows,
      "decode layer: q [{}, {}], out [{}, {}], {} rows of {}", layer.q.rows, layer.q.cols, layer.out.rows,
      layer.out.cols, rows, width);
  const auto fits = [&](DType dtype) { return RowsGoWith(dtype, kv.format); };
  TANDEM_CHECK(fits(layer.q.dtype) && fits(layer.out.dtype), "decode layer: q {}, out {}, cache {}",
               DTypeName(layer.q.dtype), DTypeName(layer.out.dtype), KvFormatName(kv.format));
  if (layer.k.data != nullptr) {
    const int64_t kv_width = kv.num_kv_heads * kv.head_dim;
    TANDEM_CHECK(layer.k.cols == kv_width && layer.v.cols == kv_width && layer.k.rows >= rows &&
                     layer.v.rows >= rows && layer.k.dtype == layer.v.dtype && fits(layer.k.dtype),
                 "decode layer: k [{}, {}], v [{}, {}], {} rows of {}", layer.k.rows, layer.k.cols,
                 layer.v.rows, layer.v.cols, rows, kv_width);
  }
}

void DecodePlan::BeginLayer() {
  for (const Join& join : joins_) {
    for (int64_t head = 0; head < join.num_heads; ++head) {
      counters_[static_cast<size_t>(join.counter_offset + head)].store(join.num_partitions,
                                                                       std::memory_order_relaxed);
    }
  }
}

AttentionRows DecodePlan::MakeRows(const DecodeLayer& layer, int64_t row, int64_t first_head,
                                   int64_t num_heads) const {
  const DecodeSequence& sequence = sequences_[static_cast<size_t>(row)];
  const int64_t width = group_size_ * shape_.kv.head_dim;
  AttentionRows rows;
  rows.q = layer.q.Rows(row, 1).Columns(first_head * width, num_heads * width);
  rows.out = layer.out.Rows(row, 1).Columns(first_head * width, num_heads * width);
  if (layer.lse != nullptr) rows.lse = layer.lse + row * shape_.num_heads + first_head * group_size_;
  rows.num_rows = 1;
  rows.group_size = group_size_;
  rows.first_position = sequence.context_len - 1;
  rows.window = shape_.sliding_window;
  rows.scale = layer.scale;
  rows.block_table = sequence.block_table.data();
  SetKv(layer.kv, first_head, num_heads, &rows);
  return rows;
}

void DecodePlan::RunItem(const AttentionKernels& kernels, const AttentionFetch& fetch,
                         const DecodeLayer& layer, int64_t part, int64_t item, int64_t next_item) {
  const std::vector<Item>& items = parts_[static_cast<size_t>(part)];
  const Item& work = items[static_cast<size_t>(item)];
  const DecodeSequence& sequence = sequences_[static_cast<size_t>(work.row)];
  const int64_t position = sequence.context_len - 1;
  const int64_t block_size = shape_.kv.block_size;
  // The item with the last partition is the only one that reads the new token.
  if (layer.k.data != nullptr && work.end_partition * kPartitionTokens > position) {
    const auto slot =
        static_cast<int32_t>(sequence.block_table[static_cast<size_t>(position / block_size)] * block_size +
                             position % block_size);
    const int64_t column = work.first_head * shape_.kv.head_dim;
    const int64_t count = work.num_heads * shape_.kv.head_dim;
    AppendToken(layer.kv, slot, work.first_head, work.num_heads,
                layer.k.Rows(work.row, 1).Columns(column, count).data,
                layer.v.Rows(work.row, 1).Columns(column, count).data, layer.k.dtype);
  }

  AttentionRows rows = MakeRows(layer, work.row, work.first_head, work.num_heads);
  rows.fetch = fetch;
  if (next_item >= 0) {
    const Item& next = items[static_cast<size_t>(next_item)];
    const int64_t key = std::max(first_key(next.row), next.first_partition * kPartitionTokens);
    const auto& table = sequences_[static_cast<size_t>(next.row)].block_table;
    rows.next_kv = layer.kv.Head(table[static_cast<size_t>(key / block_size)], next.first_head);
  }
  const int64_t head_dim = shape_.kv.head_dim;
  const int64_t states_size = work.num_heads * state_size_;
  float* states = ThreadScratch(states_size + AttentionScratchSize(group_size_, head_dim, work.num_heads));
  float* scratch = states + states_size;
  if (work.join < 0) {
    kernels.run(rows, work.first_partition, work.end_partition, states, scratch);
    kernels.finish(rows, states);
    return;
  }
  const Join& join = joins_[static_cast<size_t>(work.join)];
  const std::byte* next_kv = rows.next_kv;
  for (int64_t partition = work.first_partition; partition < work.end_partition; ++partition) {
    rows.next_kv = next_kv;
    if (partition + 1 < work.end_partition) {
      const int64_t key = (partition + 1) * kPartitionTokens;
      rows.next_kv =
          layer.kv.Head(sequence.block_table[static_cast<size_t>(key / block_size)], work.first_head);
    }
    const int64_t index =
        (partition - join.first_partition) * join.num_heads + work.first_head - join.first_head;
    kernels.run(rows, partition, partition + 1, states_.data() + join.state_offset + index * state_size_,
                scratch);
  }
  const int64_t num_partitions = work.end_partition - work.first_partition;
  for (int64_t i = 0; i < work.num_heads; ++i) {
    const int64_t head = work.first_head + i;
    auto& counter = counters_[static_cast<size_t>(join.counter_offset + head - join.first_head)];
    if (counter.fetch_sub(num_partitions, std::memory_order_acq_rel) == num_partitions) {
      FinishHead(kernels, layer, work, join, head);
    }
  }
}

void DecodePlan::FinishHead(const AttentionKernels& kernels, const DecodeLayer& layer, const Item& item,
                            const Join& join, int64_t head) {
  const auto state_of = [&](int64_t partition) {
    const int64_t index = partition * join.num_heads + head - join.first_head;
    return states_.data() + join.state_offset + index * state_size_;
  };
  for (int64_t partition = 1; partition < join.num_partitions; ++partition) {
    kernels.merge(state_of(0), state_of(partition), group_size_, shape_.kv.head_dim);
  }
  kernels.finish(MakeRows(layer, item.row, head, 1), state_of(0));
}

}  // namespace tandem
