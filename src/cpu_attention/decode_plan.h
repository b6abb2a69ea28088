// How decode attention over a batch of sequences is cut into items of work.
//
// Made once an iteration from the context lengths, used by every layer. Large items come first and get
// smaller towards the end (guided by what is left), so that one long context and many short ones both keep
// all threads busy to the last. A context is cut at partition borders (flash decoding); its parts are merged
// in order by whichever thread finishes last, so the result does not depend on the cut.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/kv_layout.h"
#include "base/matrix_view.h"
#include "cpu_attention/attention_kernels.h"

namespace tandem {

struct DecodeSequence {
  int64_t context_len = 0;           // tokens, the new one included
  std::vector<int32_t> block_table;  // ceil(context_len / block_size) block numbers
};

struct DecodeShape {
  KvShape kv;
  int64_t num_heads = 0;       // query heads; a multiple of kv.num_kv_heads
  int64_t sliding_window = 0;  // keys a row sees, its own included; 0: all
  int64_t heads_per_part = 0;  // of the cache's parts (KvLayerView); 0: one part
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
    return static_cast<int64_t>(parts_[static_cast<size_t>(part)].size());
  }
  // Bytes of K and V that an item reads.
  int64_t item_bytes(int64_t part, int64_t item) const;
  // Bytes of K and V that a layer reads.
  int64_t kv_bytes() const { return kv_bytes_; }
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
  // Partitions [first_partition, end_partition) of heads [first_head, first_head + num_heads) of a sequence.
  struct Item {
    int32_t row = 0;
    int32_t first_head = 0;
    int32_t num_heads = 0;
    int32_t join = -1;  // index into joins_; -1: the item is all there is for these heads
    int64_t first_partition = 0;
    int64_t end_partition = 0;
  };
  // A sequence whose partitions are spread over items: their states, [partition][kv head].
  struct Join {
    int32_t first_head = 0;
    int32_t num_heads = 0;
    int64_t first_partition = 0;
    int64_t num_partitions = 0;
    int64_t state_offset = 0;    // floats
    int64_t counter_offset = 0;  // one a head: partitions not yet computed
  };

  void CutPart(const std::vector<int32_t>& order, int64_t first_head, int64_t num_heads, int num_threads,
               std::vector<Item>* items);
  int64_t first_key(int64_t row) const;
  int64_t token_bytes() const;  // K and V of one head
  AttentionRows MakeRows(const DecodeLayer& layer, int64_t row, int64_t first_head, int64_t num_heads) const;
  void FinishHead(const AttentionKernels& kernels, const DecodeLayer& layer, const Item& item,
                  const Join& join, int64_t head);

  std::vector<DecodeSequence> sequences_;
  DecodeShape shape_;
  int64_t group_size_ = 1;
  int64_t state_size_ = 0;  // floats of a head's state
  int64_t kv_bytes_ = 0;
  std::vector<std::vector<Item>> parts_;
  std::vector<Join> joins_;
  std::vector<float> states_;
  std::unique_ptr<std::atomic<int64_t>[]> counters_;
  int64_t num_counters_ = 0;
};

}  // namespace tandem
