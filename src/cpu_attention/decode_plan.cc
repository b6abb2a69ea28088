#include "cpu_attention/decode_plan.h"

#include <algorithm>
#include <array>
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
  TANDEM_CHECK(shape_.most_readers >= 1 && shape_.most_readers <= kRowsPerGroup,
               "decode plan: {} rows for a read", shape_.most_readers);
  runs_ = AttendedRuns(sequences_, kv.block_size, shape_.sliding_window, shape_.most_readers);
  const auto num_tokens = [&](const AttendedRun& run) {
    return NumTokens(run, run.first_partition, run.end_partition);
  };
  std::stable_sort(runs_.begin(), runs_.end(),
                   [&](const AttendedRun& a, const AttendedRun& b) { return num_tokens(a) > num_tokens(b); });
  for (const AttendedRun& run : runs_) {
    const int64_t run_bytes = num_tokens(run) * kv.num_kv_heads * token_bytes();
    kv_bytes_ += run_bytes;
    attended_kv_bytes_ += run_bytes * static_cast<int64_t>(run.rows.size());
  }

  const int64_t heads_per_part = shape_.heads_per_part > 0 ? shape_.heads_per_part : kv.num_kv_heads;
  const int64_t num_parts = (kv.num_kv_heads + heads_per_part - 1) / heads_per_part;
  const int part_threads = std::max(1, num_threads / static_cast<int>(num_parts));
  for (int64_t head = 0; head < kv.num_kv_heads; head += heads_per_part) {
    CutPart(head, std::min(heads_per_part, kv.num_kv_heads - head), part_threads, &parts_.emplace_back());
  }
  counters_ = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(num_counters_));
}

int64_t DecodePlan::NumTokens(const AttendedRun& run, int64_t first, int64_t end) const {
  const int32_t row = run.rows.front();
  return std::min(sequences_[static_cast<size_t>(row)].context_len, end * kPartitionTokens) -
         std::max(first_key(row), first * kPartitionTokens);
}

int64_t DecodePlan::item_bytes(int64_t part, int64_t item) const {
  const Item& work = parts_[static_cast<size_t>(part)].items[static_cast<size_t>(item)];
  return NumTokens(runs_[static_cast<size_t>(work.run)], work.first_partition, work.end_partition) *
         work.num_heads * token_bytes();
}

int64_t DecodePlan::token_bytes() const {
  return static_cast<int64_t>(shape_.kv.HeadBytes()) / shape_.kv.block_size;
}

void DecodePlan::CutPart(int64_t first_head, int64_t num_heads, int num_threads, Part* part) {
  const int64_t all_heads_bytes = num_heads * token_bytes();  // of one token
  int64_t left_bytes = kv_bytes_ / shape_.kv.num_kv_heads * num_heads;
  std::vector<bool> apart(sequences_.size());  // rows whose partitions are spread over items
  for (size_t r = 0; r < runs_.size(); ++r) {
    const AttendedRun& run = runs_[r];
    for (int64_t partition = run.first_partition; partition < run.end_partition;) {
      const int64_t target = std::max(kMinItemBytes, left_bytes / (kItemsPerThread * num_threads));
      const int64_t target_tokens = target / all_heads_bytes;
      const int64_t left_tokens = NumTokens(run, partition, run.end_partition);
      // Half an item more is better than a very small one after it.
      const int64_t count = left_tokens <= target_tokens + target_tokens / 2
                                ? run.end_partition - partition
                                : std::max<int64_t>(1, target_tokens / kPartitionTokens);
      const int64_t tokens = NumTokens(run, partition, partition + count);
      // Heads are only divided where a single partition is too much: long pieces are read faster.
      const int64_t pieces =
          count > 1 ? 1 : std::clamp<int64_t>(tokens * all_heads_bytes / target, 1, num_heads);
      const int64_t span = (num_heads + pieces - 1) / pieces;
      for (int64_t head = 0; head < num_heads; head += span) {
        part->items.push_back({.run = static_cast<int32_t>(r),
                               .first_head = static_cast<int32_t>(first_head + head),
                               .num_heads = static_cast<int32_t>(std::min(span, num_heads - head)),
                               .first_partition = partition,
                               .end_partition = partition + count});
      }
      // Also the end of a context whose beginning is read with others.
      const bool whole_context = partition == first_key(run.rows.front()) / kPartitionTokens &&
                                 partition + count == end_partition(run.rows.front());
      for (const int32_t row : run.rows) apart[static_cast<size_t>(row)] = !whole_context;
      left_bytes -= tokens * all_heads_bytes;
      partition += count;
    }
  }
  part->joins.assign(sequences_.size(), -1);
  for (size_t row = 0; row < sequences_.size(); ++row) {
    if (apart[row]) AddJoin(static_cast<int32_t>(row), first_head, num_heads, part);
  }
}

void DecodePlan::AddJoin(int32_t row, int64_t first_head, int64_t num_heads, Part* part) {
  Join join;
  join.row = row;
  join.first_head = static_cast<int32_t>(first_head);
  join.num_heads = static_cast<int32_t>(num_heads);
  join.first_partition = first_key(row) / kPartitionTokens;
  join.num_partitions = end_partition(row) - join.first_partition;
  join.state_offset = static_cast<int64_t>(states_.size());
  join.counter_offset = num_counters_;
  part->joins[static_cast<size_t>(row)] = static_cast<int32_t>(joins_.size());
  joins_.push_back(join);
  states_.resize(states_.size() + static_cast<size_t>(join.num_partitions * num_heads * state_size_));
  num_counters_ += num_heads;
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

AttentionRows DecodePlan::MakeRows(const DecodeLayer& layer, int32_t row, int64_t first_head,
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

AttentionRows DecodePlan::MakeRows(const DecodeLayer& layer, const Item& item) const {
  const std::vector<int32_t>& numbers = runs_[static_cast<size_t>(item.run)].rows;
  AttentionRows rows = MakeRows(layer, numbers.front(), item.first_head, item.num_heads);
  if (numbers.size() == 1) return rows;
  const int64_t width = group_size_ * shape_.kv.head_dim;
  rows.q = layer.q.Columns(item.first_head * width, item.num_heads * width);
  rows.out = {};
  rows.lse = nullptr;
  rows.row_numbers = numbers.data();
  rows.num_rows = static_cast<int64_t>(numbers.size());
  // All see all of it.
  rows.first_position = item.end_partition * kPartitionTokens - 1;
  rows.position_step = 0;
  rows.window = 0;
  return rows;
}

const std::byte* DecodePlan::FirstPiece(const DecodeLayer& layer, const Item& item) const {
  const int32_t row = runs_[static_cast<size_t>(item.run)].rows.front();
  const int64_t key = std::max(first_key(row), item.first_partition * kPartitionTokens);
  const auto& table = sequences_[static_cast<size_t>(row)].block_table;
  return layer.kv.Head(table[static_cast<size_t>(key / shape_.kv.block_size)], item.first_head);
}

// The item with a row's last partition is the only one that reads its new token, and that partition is the
// row's alone.
void DecodePlan::AppendNewToken(const DecodeLayer& layer, const Item& item) const {
  const int32_t row = runs_[static_cast<size_t>(item.run)].rows.front();
  const DecodeSequence& sequence = sequences_[static_cast<size_t>(row)];
  const int64_t position = sequence.context_len - 1;
  if (layer.k.data == nullptr || item.end_partition * kPartitionTokens <= position) return;
  const int64_t block_size = shape_.kv.block_size;
  const auto slot = static_cast<int32_t>(
      sequence.block_table[static_cast<size_t>(position / block_size)] * block_size + position % block_size);
  const int64_t column = item.first_head * shape_.kv.head_dim;
  const int64_t count = item.num_heads * shape_.kv.head_dim;
  AppendToken(layer.kv, slot, item.first_head, item.num_heads,
              layer.k.Rows(row, 1).Columns(column, count).data,
              layer.v.Rows(row, 1).Columns(column, count).data, layer.k.dtype);
}

void DecodePlan::RunItem(const AttentionKernels& kernels, const AttentionFetch& fetch,
                         const DecodeLayer& layer, int64_t part, int64_t item, int64_t next_item) {
  const Part& in = parts_[static_cast<size_t>(part)];
  const Item& work = in.items[static_cast<size_t>(item)];
  const std::vector<int32_t>& numbers = runs_[static_cast<size_t>(work.run)].rows;
  AppendNewToken(layer, work);
  AttentionRows rows = MakeRows(layer, work);
  rows.fetch = fetch;
  if (next_item >= 0) rows.next_kv = FirstPiece(layer, in.items[static_cast<size_t>(next_item)]);
  const int64_t head_dim = shape_.kv.head_dim;
  const int64_t scratch_size = AttentionScratchSize(rows.num_queries(), head_dim, work.num_heads);
  if (in.joins[static_cast<size_t>(numbers.front())] < 0) {
    const int64_t states_size = work.num_heads * state_size_;
    float* states = ThreadScratch(states_size + scratch_size);
    kernels.run(rows, work.first_partition, work.end_partition, states, states + states_size);
    kernels.finish(rows, states);
    return;
  }
  std::array<float*, kRowsPerGroup> states = {};
  const auto join_of = [&](int32_t row) -> const Join& {
    return joins_[static_cast<size_t>(in.joins[static_cast<size_t>(row)])];
  };
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Join& join = join_of(numbers[i]);
    states[i] = StateOf(join, work.first_partition - join.first_partition, work.first_head);
  }
  const int64_t partition_stride = join_of(numbers.front()).num_heads * state_size_;
  kernels.run_apart(rows, work.first_partition, work.end_partition, states.data(), partition_stride,
                    ThreadScratch(scratch_size));
  const int64_t num_partitions = work.end_partition - work.first_partition;
  for (const int32_t row : numbers) {
    const Join& join = join_of(row);
    for (int64_t head = work.first_head; head < work.first_head + work.num_heads; ++head) {
      auto& counter = counters_[static_cast<size_t>(join.counter_offset + head - join.first_head)];
      if (counter.fetch_sub(num_partitions, std::memory_order_acq_rel) == num_partitions)
        FinishHead(kernels, layer, join, head);
    }
  }
}

float* DecodePlan::StateOf(const Join& join, int64_t partition, int64_t head) {
  const int64_t index = partition * join.num_heads + head - join.first_head;
  return states_.data() + join.state_offset + index * state_size_;
}

void DecodePlan::FinishHead(const AttentionKernels& kernels, const DecodeLayer& layer, const Join& join,
                            int64_t head) {
  float* state = StateOf(join, 0, head);
  for (int64_t partition = 1; partition < join.num_partitions; ++partition)
    kernels.merge(state, StateOf(join, partition, head), group_size_, shape_.kv.head_dim);
  kernels.finish(MakeRows(layer, join.row, head, 1), state);
}

}  // namespace tandem
