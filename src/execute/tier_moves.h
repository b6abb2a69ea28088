// Moves of whole sequences between the tiers, layer by layer, beside the iteration that they belong to.
//
//   copy stream      out 0 | out 1 | ... | in 0 | in 1 | ...
//   compute stream   ..........[0] layer 0 .........[1] layer 1
//
// [i]: the compute stream goes on to layer i once its copies are done. So a moved sequence may decode in its
// new tier, and the blocks that it left may be written by others, in the same iteration.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "device/device.h"
#include "kv/tiered_cache.h"
#include "ops/ops.h"
#include "plan/iteration_plan.h"

namespace tandem {

// Engine thread only.
class TierMoves {
 public:
  // All outlive it.
  TierMoves(Device* device, Ops* ops, TieredCache* cache, int64_t num_layers);

  // Switches the tables and enqueues the copies, in each direction in the order given, out of the gpu tier
  // first as far as there is room. CHECKs that all find room once others have left: the plan promised it.
  void Begin(const std::vector<Move>& moves, Stream& copy_stream);
  // Whether Begin has had anything to do since the last End.
  bool any() const { return any_; }
  // What is enqueued on compute_stream from now on finds the layer as it is after the moves.
  void AwaitLayer(int64_t layer, Stream& compute_stream) const;
  void End() { any_ = false; }

 private:
  // The first of the sequences that the tier has room for; takes them out. False: there is none.
  bool BeginFirst(std::deque<SequenceId>* sequences, Tier to, Stream& copy_stream);

  Ops* ops_;
  TieredCache* cache_;
  std::vector<std::unique_ptr<Event>> moved_;  // one a layer
  bool any_ = false;
};

}  // namespace tandem
