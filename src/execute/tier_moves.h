// Moves of whole sequences between the tiers, layer by layer, beside the iteration that they belong to.
//
//   copy stream      out 0, in 0 | out 1, in 1 | ...
//   compute stream   ...........[0] layer 0 ...[1] layer 1
//
// [i]: the compute stream goes on to layer i once its copies are done. So a moved sequence may decode in its
// new tier, and the blocks that it left may be written by others, in the same iteration.
//
// A later move may write the blocks that an earlier one left. That needs no wait: the copies of a layer are
// enqueued in the order of the moves, on one stream that runs in order, and layers share no memory. So every
// block of a layer is read before a later move writes it.
#pragma once

#include <cstdint>
#include <memory>
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
  TierMoves(Device* device, Ops* ops, KvMemory* memory, int64_t num_layers);

  // Enqueues the copies, of each layer in the order given.
  void Begin(const std::vector<BlockMove>& moves, Stream& copy_stream);
  // Whether Begin has had anything to do since the last End.
  bool any() const { return any_; }
  // What is enqueued on compute_stream from now on finds the layer as it is after the moves.
  void AwaitLayer(int64_t layer, Stream& compute_stream) const;
  void End() { any_ = false; }

 private:
  Ops* ops_;
  KvMemory* memory_;
  std::vector<std::unique_ptr<Event>> moved_;  // one a layer
  bool any_ = false;
};

}  // namespace tandem
