// Batches for the tests of prefill attention.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/attention.h"

namespace tandem {

inline constexpr int64_t kBlockSize = 32;

struct Lengths {
  int64_t rows = 1;
  int64_t context = 1;  // the rows included
};

// Rows follow each other from first_row on, blocks from 0 on.
inline std::vector<AttentionSequence> MakeSequences(const std::vector<Lengths>& lengths, int64_t first_row) {
  std::vector<AttentionSequence> sequences;
  int64_t row = first_row;
  int32_t block = 0;
  for (const Lengths& length : lengths) {
    AttentionSequence sequence;
    sequence.row_begin = row;
    sequence.num_rows = length.rows;
    sequence.context_len = length.context;
    sequence.block_table.resize(static_cast<size_t>((length.context + kBlockSize - 1) / kBlockSize));
    std::iota(sequence.block_table.begin(), sequence.block_table.end(), block);
    block += static_cast<int32_t>(sequence.block_table.size());
    row += length.rows;
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

// Just enough for these.
inline AttentionCapacity CapacityOf(const std::vector<AttentionSequence>& sequences, const KvShape& kv,
                                    int64_t num_heads) {
  AttentionCapacity capacity;
  capacity.kv = kv;
  capacity.num_heads = num_heads;
  capacity.max_sequences = static_cast<int64_t>(sequences.size());
  for (const AttentionSequence& sequence : sequences) {
    capacity.max_rows += sequence.num_rows;
    capacity.max_blocks += static_cast<int64_t>(sequence.block_table.size());
  }
  return capacity;
}

}  // namespace tandem
