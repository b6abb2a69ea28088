// How decode attention over a batch of sequences is cut into items of work.
//
// Made once an iteration from the context lengths, used by every layer. Large items come first and get
// smaller towards the end (guided by what is left), so that one long context and many short ones both keep
// all threads busy to the last. A context is cut at partition borders (flash decoding); its parts are merged
// in order by whichever thread finishes last, so the result does not depend on the cut. What rows have in
// common is read once for all of them (attended_runs.h), and the result does not depend on that either.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/kv_layout.h"
#include "base/matrix_view.h"
#include "cpu_attention/attended_runs.h"
#include "cpu_attention/attention_kernels.h"

namespace tandem {

struct DecodeShape {
  KvShape kv;
  int64_t num_heads = 0;       // query heads; a multiple of kv.num_kv_heads
  int64_t sliding_window = 0;  // keys a row sees, its own included; 0: all
  int64_t heads_per_part = 0;  // of the cache's parts (KvLayerView); 0: one part
  // One read for at most so many rows that have the same blocks, up to kRowsPerGroup; 1: each reads its own.
  int64_t most_readers = kRowsPerGroup;
};

// What changes from layer to layer. Host memory (pinned where a GPU writes it). q and out: [rows, num_heads *
// head_dim], row i is sequence i; k and v: [rows, num_kv_heads * head_dim] of the new tokens, already
// rotated. Of types that go with the cache (RowsGoWith). k.data null: the new tokens are in the cache
// already.
struct DecodeLayer {
  KvLayerView kv;
  MatrixView q;
  MatrixView k;
  MatrixView v;
  MatrixView out;
  float* lse = nullptr;  // [rows, num_heads] log-sum-exp of the scaled scores, or null
  float scale = 1.0F;
};

// One layer at a time runs on a plan: BeginLayer, then every item once, from any threads.
class DecodePlan {
 public:
  // num_threads: that will share the work.
  DecodePlan(std::vector<DecodeSequence> sequences, const DecodeShape& shape, int num_threads);

  int64_t num_parts() const { return static_cast<int64_t>(parts_.size()); }
  // Items of a part, the largest first.
  int64_t num_items(int64_t part) const {
    return static_cast<int64_t>(parts_[static_cast<size_t>(part)].items.size());
  }
  // Bytes of K and V that an item reads.
  int64_t item_bytes(int64_t part, int64_t item) const;
  // Bytes of K and V that a layer reads.
  int64_t kv_bytes() const { return kv_bytes_; }
  // What it would read if every row read its own.
  int64_t attended_kv_bytes() const { return attended_kv_bytes_; }
  const DecodeShape& shape() const { return shape_; }
  const std::vector<DecodeSequence>& sequences() const { return sequences_; }

  // CHECKs the layer's shapes.
  void CheckLayer(const DecodeLayer& layer) const;
  // The items of the layer before have all run.
  void BeginLayer();
  // Appends the new tokens that the item reads, attends, and writes out what is then complete. next_item:
  // what this thread will run after it, to be fetched meanwhile; -1: nothing.
  void RunItem(const AttentionKernels& kernels, const AttentionFetch& fetch, const DecodeLayer& layer,
               int64_t part, int64_t item, int64_t next_item);

 private:
  // Partitions [first_partition, end_partition) of heads [first_head, first_head + num_heads) of a run.
  struct Item {
    int32_t run = 0;
    int32_t first_head = 0;
    int32_t num_heads = 0;
    int64_t first_partition = 0;
    int64_t end_partition = 0;
  };
  // A row whose partitions are spread over items: their states, [partition][kv head].
  struct Join {
    int32_t row = 0;
    int32_t first_head = 0;
    int32_t num_heads = 0;
    int64_t first_partition = 0;
    int64_t num_partitions = 0;
    int64_t state_offset = 0;    // floats
    int64_t counter_offset = 0;  // one a head: partitions not yet computed
  };
  struct Part {
    std::vector<Item> items;
    std::vector<int32_t> joins;  // of each row, into joins_; -1: an item is all there is for its heads
  };

  void CutPart(int64_t first_head, int64_t num_heads, int num_threads, Part* part);
  void AddJoin(int32_t row, int64_t first_head, int64_t num_heads, Part* part);
  int64_t first_key(int32_t row) const {
    return FirstKey(sequences_[static_cast<size_t>(row)], shape_.sliding_window);
  }
  int64_t end_partition(int32_t row) const {
    return (sequences_[static_cast<size_t>(row)].context_len - 1) / kPartitionTokens + 1;
  }
  // Keys of partitions [first, end) that the run's rows see.
  int64_t NumTokens(const AttendedRun& run, int64_t first, int64_t end) const;
  int64_t token_bytes() const;  // K and V of one head
  AttentionRows MakeRows(const DecodeLayer& layer, int32_t row, int64_t first_head, int64_t num_heads) const;
  AttentionRows MakeRows(const DecodeLayer& layer, const Item& item) const;
  // First piece that the item reads.
  const std::byte* FirstPiece(const DecodeLayer& layer, const Item& item) const;
  void AppendNewToken(const DecodeLayer& layer, const Item& item) const;
  // Of partition join.first_partition + partition.
  float* StateOf(const Join& join, int64_t partition, int64_t head);
  void FinishHead(const AttentionKernels& kernels, const DecodeLayer& layer, const Join& join, int64_t head);

  std::vector<DecodeSequence> sequences_;
  DecodeShape shape_;
  int64_t group_size_ = 1;
  int64_t state_size_ = 0;  // floats of a head's state
  int64_t kv_bytes_ = 0;
  int64_t attended_kv_bytes_ = 0;
  std::vector<AttendedRun> runs_;  // the longest first
  std::vector<Part> parts_;
  std::vector<Join> joins_;
  std::vector<float> states_;
  std::unique_ptr<std::atomic<int64_t>[]> counters_;
  int64_t num_counters_ = 0;
};

}  // namespace tandem
