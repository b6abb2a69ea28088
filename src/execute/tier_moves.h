// Moves of whole sequences between the tiers, layer by layer, beside the iteration that they belong to.
//
//   copy stream      out 0 | out 1 | ... | in 0 | in 1 | ...
//   compute stream   ..........[0] layer 0 .........[1] layer 1
//
// [i]: the compute stream goes on to layer i once its copies are done. So a moved sequence may decode in its
// new tier, and the blocks that it left may be written by others, in the same iteration.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "kv/tiered_cache.h"
#include "ops/ops.h"
#include "plan/block_move.h"

namespace tandem {

// Engine thread only.
class TierMoves {
 public:
  // All outlive it.
  TierMoves(Device* device, Ops* ops, const TieredCache* kv, int64_t num_layers);

  // Enqueues the copies, in the order given: neighbours of one direction go together, layer by layer, so that
  // the next ones may write the blocks that these have left.
  void Begin(std::span<const BlockMove> moves, Stream& copy_stream);
  // Whether Begin has had anything to do since the last End.
  bool any() const { return any_; }
  // What is enqueued on compute_stream from now on finds the layer as it is after the moves.
  void AwaitLayer(int64_t layer, Stream& compute_stream) const;
  void End() { any_ = false; }

 private:
  void CopyLayer(int64_t layer, const BlockMove& move, Stream& copy_stream);

  Ops* ops_;
  const TieredCache* kv_;
  std::vector<std::unique_ptr<Event>> moved_;  // one a layer
  bool any_ = false;
};

}  // namespace tandem
