#include "execute/tier_moves.h"

#include "base/check.h"

namespace tandem {

TierMoves::TierMoves(Device* device, Ops* ops, TieredCache* cache, int64_t num_layers)
    : ops_(ops), cache_(cache) {
  for (int64_t layer = 0; layer < num_layers; ++layer) moved_.push_back(device->CreateEvent());
}

bool TierMoves::BeginFirst(std::deque<SequenceId>* sequences, Tier to, Stream& copy_stream) {
  std::vector<KvSwap*> swaps;
  while (!sequences->empty()) {
    KvSwap* swap = cache_->BeginSwap(sequences->front(), to);
    if (swap == nullptr) break;
    swaps.push_back(swap);
    sequences->pop_front();
  }
  if (swaps.empty()) return false;
  any_ = true;
  for (size_t layer = 0; layer < moved_.size(); ++layer) {
    for (KvSwap* swap : swaps) swap->CopyLayer(static_cast<int64_t>(layer), *ops_, copy_stream);
    copy_stream.Record(*moved_[layer]);
  }
  for (KvSwap* swap : swaps) cache_->EndSwap(swap);
  return true;
}

void TierMoves::Begin(const std::vector<Move>& moves, Stream& copy_stream) {
  if (moves.empty()) return;
  const StreamRange range(copy_stream, "moves between tiers");
  std::deque<SequenceId> out;
  std::deque<SequenceId> in;
  for (const Move& move : moves) (move.to == Tier::kCpu ? out : in).push_back(move.sequence);
  // What comes in may need the blocks of what goes out, and the other way round: each direction in its order,
  // as far as there is room, in turns.
  while (!out.empty() || !in.empty()) {
    const bool went_out = BeginFirst(&out, Tier::kCpu, copy_stream);
    const bool came_in = BeginFirst(&in, Tier::kGpu, copy_stream);
    TANDEM_CHECK(went_out || came_in, "no room for {} moves to the cpu tier and {} to the gpu tier",
                 out.size(), in.size());
  }
}

void TierMoves::AwaitLayer(int64_t layer, Stream& compute_stream) const {
  if (any_) compute_stream.Wait(*moved_[static_cast<size_t>(layer)]);
}

}  // namespace tandem
