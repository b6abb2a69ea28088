#include "execute/tier_moves.h"

#include "kv/kv_move_copy.h"

namespace tandem {

TierMoves::TierMoves(Device* device, Ops* ops, const KvMemory* kv, int64_t num_layers) : ops_(ops), kv_(kv) {
  for (int64_t layer = 0; layer < num_layers; ++layer) moved_.push_back(device->CreateEvent());
}

void TierMoves::Begin(std::span<const BlockMove> moves, Stream& copy_stream) {
  if (moves.empty()) return;
  const StreamRange range(copy_stream, "moves between tiers");
  any_ = true;
  std::vector<KvMoveCopy> copies;
  copies.reserve(moves.size());
  for (const BlockMove& move : moves) copies.emplace_back(kv_, move);
  for (size_t layer = 0; layer < moved_.size(); ++layer) {
    for (KvMoveCopy& copy : copies) copy.CopyLayer(static_cast<int64_t>(layer), *ops_, copy_stream);
    copy_stream.Record(*moved_[layer]);
  }
}

void TierMoves::AwaitLayer(int64_t layer, Stream& compute_stream) const {
  if (any_) compute_stream.Wait(*moved_[static_cast<size_t>(layer)]);
}

}  // namespace tandem
