// Who reads which keys of a batch together.
//
// Rows whose contexts begin in the same blocks (kv/kv_books.h attaches them) read a partition of these at
// once: the processor takes more queries for little more than the reading. Only whole partitions are shared,
// and a row's partitions are its own: whoever reads them, its result has the same bits.
//
//   row 0   [ a | b | c ]      runs   {0, 1, 2} a;  {0, 1} b;  {0} c;  {1} d;  {2} e f
//   row 1   [ a | b | d ]
//   row 2   [ a | e | f ]
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct DecodeSequence {
  int64_t context_len = 0;           // tokens, the new one included
  std::vector<int32_t> block_table;  // ceil(context_len / block_size) block numbers
};

// Partitions [first_partition, end_partition) of the contexts of `rows`.
struct AttendedRun {
  // Ascending. Several: their blocks are the same, and all see every key.
  std::vector<int32_t> rows;
  int64_t first_partition = 0;
  int64_t end_partition = 0;
};

// First key that the row of a sequence sees. window: 0: all.
int64_t FirstKey(const DecodeSequence& sequence, int64_t window);

// Every partition that a row sees is in exactly one of its runs. most_readers: rows of a run, at most.
std::vector<AttendedRun> AttendedRuns(const std::vector<DecodeSequence>& sequences, int64_t block_size,
                                      int64_t window, int64_t most_readers);

}  // namespace tandem
