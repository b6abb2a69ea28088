// Moves of whole sequences between the tiers, layer by layer, beside the iteration that they belong to.
//
//   copy stream      moves of 0 | moves of 1 | ...
//   compute stream   ...........[0] layer 0 ..[1] layer 1
//
// [i]: the compute stream goes on to layer i once its copies are done. So a moved sequence may decode in its
// new tier, and the blocks that it left may be written by others, in the same iteration.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "kv/kv_memory.h"
#include "ops/ops.h"
#include "plan/block_move.h"

namespace tandem {

// Engine thread only.
class TierMoves {
 public:
  // All outlive it.
  TierMoves(Device* device, Ops* ops, const KvMemory* kv, int64_t num_layers);

  // Enqueues the copies, layer by layer, and of each layer in the order given: a move may write the blocks
  // that one before it has left.
  void Begin(std::span<const BlockMove> moves, Stream& copy_stream);
  // Whether Begin has had anything to do since the last End.
  bool any() const { return any_; }
  // What is enqueued on compute_stream from now on finds the layer as it is after the moves.
  void AwaitLayer(int64_t layer, Stream& compute_stream) const;
  void End() { any_ = false; }

 private:
  Ops* ops_;
  const KvMemory* kv_;
  std::vector<std::unique_ptr<Event>> moved_;  // one a layer
  bool any_ = false;
};

}  // namespace tandem
