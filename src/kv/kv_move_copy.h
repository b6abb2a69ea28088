// Copies the KV of a sequence to the other tier, layer by layer.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "kv/kv_memory.h"
#include "ops/kv_copy.h"
#include "plan/block_move.h"

namespace tandem {

class Ops;

// Engine thread only. What is copied of a move in one memory: the books know nothing of it, so whoever ends a
// move sees to it that this is complete in every memory.
//
// CopyLayer and CopyTokens only enqueue (Ops::CopyKv: copies, and whatever the backend does so that elements
// arrive in the other tier's order). ops: of the backend of the memory. The caller orders them against the
// work around them: after the source layer is computed, before the destination layer is read, and before the
// source blocks (a move that ends) or those of the destination (a move that is cancelled) are written by
// anyone else.
class KvMoveCopy {
 public:
  // memory outlives it.
  KvMoveCopy(const KvMemory* memory, const BlockMove& move);

  const BlockMove& move() const { return move_; }
  int64_t num_layers() const { return static_cast<int64_t>(copied_blocks_.size()); }

  // Enqueues the copies of one layer.
  CopyKvCount CopyLayer(int64_t layer, Ops& ops, Stream& stream);
  // Enqueues the copies of the blocks of one layer that hold the tokens [begin, end), such as a chunk of a
  // prompt just computed. Chunks come in order and leave nothing out; a block that two of them share moves
  // with each.
  CopyKvCount CopyTokens(int64_t layer, int64_t begin, int64_t end, Ops& ops, Stream& stream);
  // True once every block of every layer has been copied.
  bool complete() const;
  // Aborts unless it is complete: to be called before the move ends.
  void CheckComplete() const;

 private:
  CopyKvCount CopyBlocks(int64_t layer, int64_t begin, int64_t end, Ops& ops, Stream& stream);
  int64_t num_blocks() const { return static_cast<int64_t>(move_.source_blocks.size()); }

  const KvMemory* memory_;
  BlockMove move_;
  std::vector<int64_t> copied_blocks_;  // of each layer: the first so many are copied
};

}  // namespace tandem
