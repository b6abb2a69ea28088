// A swap under way: the KV of one sequence on its way to the other tier, layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "kv/tier_layout.h"
#include "ops/kv_copy.h"
#include "plan/iteration_plan.h"

namespace tandem {

class Ops;

// Engine thread only. Belongs to the TieredCache that began it; ends with EndSwap, CancelSwap or the
// sequence's Release.
//
// CopyLayer and CopyTokens only enqueue (Ops::CopyKv: copies, and whatever the backend does so that elements
// arrive in the other tier's order). ops: of the backend of the cache's memory. The caller orders them
// against the work around them: after the source layer is computed, before the destination layer is read, and
// before the source blocks (a swap that ends) or those of the destination (a swap that is cancelled) are
// written by anyone else.
class KvSwap {
 public:
  // One side of the swap: a tier's memory.
  struct Side {
    const TierLayout* layout = nullptr;
    std::byte* memory = nullptr;
  };

  // destination_blocks: as many as source_blocks. The layouts and memories outlive the swap. The gpu tier has
  // one part.
  KvSwap(SequenceId sequence, Tier to, const Side& source, std::vector<int32_t> source_blocks,
         const Side& destination, std::vector<int32_t> destination_blocks);

  SequenceId sequence() const { return sequence_; }
  Tier to() const { return to_; }
  Tier from() const { return to_ == Tier::kGpu ? Tier::kCpu : Tier::kGpu; }
  int64_t num_layers() const { return static_cast<int64_t>(copied_blocks_.size()); }
  // Where the sequence's KV lay when the swap began; still its own until the swap ends. Prefill of the
  // sequence that runs during the swap reads and writes here.
  const std::vector<int32_t>& source_blocks() const { return source_blocks_; }

  // Enqueues the copies of one layer.
  CopyKvCount CopyLayer(int64_t layer, Ops& ops, Stream& stream);
  // Enqueues the copies of the blocks of one layer that hold the tokens [begin, end), such as a chunk of a
  // prompt just computed. Chunks come in order and leave nothing out; a block that two of them share moves
  // with each.
  CopyKvCount CopyTokens(int64_t layer, int64_t begin, int64_t end, Ops& ops, Stream& stream);
  // True once every block of every layer has been copied.
  bool complete() const;

 private:
  CopyKvCount CopyBlocks(int64_t layer, int64_t begin, int64_t end, Ops& ops, Stream& stream);

  SequenceId sequence_;
  Tier to_;
  Side source_;
  Side destination_;
  std::vector<int32_t> source_blocks_;
  std::vector<int32_t> destination_blocks_;
  std::vector<int64_t> copied_blocks_;  // of each layer: the first so many are copied
};

}  // namespace tandem
