#include "cpu_attention/attended_runs.h"

#include <algorithm>
#include <utility>

#include "base/kv_layout.h"

namespace tandem {
namespace {

// Blocks that hold a partition's keys.
struct BlockSpan {
  int64_t first = 0;
  int64_t count = 0;
};

BlockSpan BlocksOf(int64_t partition, int64_t block_size) {
  const int64_t first = partition * kPartitionTokens / block_size;
  return {first, ((partition + 1) * kPartitionTokens - 1) / block_size + 1 - first};
}

// Collects the runs of several rows, partition by partition.
class SharedRuns {
 public:
  SharedRuns(const std::vector<DecodeSequence>& sequences, int64_t block_size, int64_t window,
             int64_t most_readers)
      : sequences_(sequences),
        block_size_(block_size),
        window_(window),
        most_readers_(most_readers),
        last_run_(sequences.size(), -1) {
    int64_t first_whole = 0;  // partition from which on no window begins any more
    for (const DecodeSequence& sequence : sequences_)
      first_whole = std::max(first_whole, FirstWholePartition(sequence));
    for (int64_t partition = 0; AddPartition(partition) || partition < first_whole; ++partition) {
    }
  }

  std::vector<AttendedRun>& runs() { return runs_; }

 private:
  int64_t FirstWholePartition(const DecodeSequence& sequence) const {
    return (FirstKey(sequence, window_) + kPartitionTokens - 1) / kPartitionTokens;
  }
  const int32_t* Blocks(int32_t row, BlockSpan span) const {
    return sequences_[static_cast<size_t>(row)].block_table.data() + span.first;
  }

  // Whether anything of it is shared. If nothing is, nothing behind it will be: equal blocks are the
  // beginning of a context.
  bool AddPartition(int64_t partition) {
    const BlockSpan span = BlocksOf(partition, block_size_);
    std::vector<int32_t> rows;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      // The new token is not in the cache yet.
      const bool whole = FirstWholePartition(sequences_[i]) <= partition &&
                         (partition + 1) * kPartitionTokens < sequences_[i].context_len;
      if (whole) rows.push_back(static_cast<int32_t>(i));
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [&](int32_t a, int32_t b) { return *Blocks(a, span) < *Blocks(b, span); });
    bool any = false;
    for (auto it = rows.begin(); it != rows.end();) {
      const int32_t* blocks = Blocks(*it, span);
      const auto end =
          std::find_if(it, rows.end(), [&](int32_t row) { return *Blocks(row, span) != *blocks; });
      const auto differs = std::stable_partition(
          it, end, [&](int32_t row) { return std::equal(blocks, blocks + span.count, Blocks(row, span)); });
      if (differs - it > 1) {
        AddGroup({it, differs}, partition);
        any = true;
      }
      it = end;
    }
    return any;
  }

  // Cut into as few runs as they fit, of about equal numbers of rows.
  void AddGroup(const std::vector<int32_t>& rows, int64_t partition) {
    const auto num_rows = static_cast<int64_t>(rows.size());
    const int64_t num_runs = (num_rows + most_readers_ - 1) / most_readers_;
    for (int64_t i = 0; i < num_runs; ++i) {
      AddRun({rows.begin() + num_rows * i / num_runs, rows.begin() + num_rows * (i + 1) / num_runs},
             partition);
    }
  }

  void AddRun(std::vector<int32_t> rows, int64_t partition) {
    const int32_t last = last_run_[static_cast<size_t>(rows.front())];
    if (last >= 0) {
      AttendedRun& run = runs_[static_cast<size_t>(last)];
      if (run.end_partition == partition && run.rows == rows) {
        ++run.end_partition;
        return;
      }
    }
    for (const int32_t row : rows) last_run_[static_cast<size_t>(row)] = static_cast<int32_t>(runs_.size());
    runs_.push_back({std::move(rows), partition, partition + 1});
  }

  const std::vector<DecodeSequence>& sequences_;
  int64_t block_size_;
  int64_t window_;
  int64_t most_readers_;
  std::vector<AttendedRun> runs_;
  std::vector<int32_t> last_run_;  // of each row; -1: none yet
};

}  // namespace

int64_t FirstKey(const DecodeSequence& sequence, int64_t window) {
  return window > 0 ? std::max<int64_t>(0, sequence.context_len - window) : 0;
}

std::vector<AttendedRun> AttendedRuns(const std::vector<DecodeSequence>& sequences, int64_t block_size,
                                      int64_t window, int64_t most_readers) {
  std::vector<AttendedRun> runs;
  if (most_readers > 1 && sequences.size() > 1)
    runs = std::move(SharedRuns(sequences, block_size, window, most_readers).runs());
  // What lies between and behind the runs of several, which are in ascending order.
  std::vector<int64_t> next(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) next[i] = FirstKey(sequences[i], window) / kPartitionTokens;
  const size_t num_shared = runs.size();
  const auto add_alone = [&](int32_t row, int64_t end) {
    const int64_t first = next[static_cast<size_t>(row)];
    if (first < end) runs.push_back({{row}, first, end});
  };
  for (size_t i = 0; i < num_shared; ++i) {
    const int64_t first = runs[i].first_partition;
    const int64_t end = runs[i].end_partition;
    for (size_t r = 0; r < runs[i].rows.size(); ++r) {
      const int32_t row = runs[i].rows[r];
      add_alone(row, first);
      next[static_cast<size_t>(row)] = end;
    }
  }
  for (size_t i = 0; i < sequences.size(); ++i)
    add_alone(static_cast<int32_t>(i), (sequences[i].context_len - 1) / kPartitionTokens + 1);
  return runs;
}

}  // namespace tandem
