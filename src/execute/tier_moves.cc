#include "execute/tier_moves.h"

#include <algorithm>

namespace tandem {

TierMoves::TierMoves(Device* device, Ops* ops, const TieredCache* kv, int64_t num_layers)
    : ops_(ops), kv_(kv) {
  for (int64_t layer = 0; layer < num_layers; ++layer) moved_.push_back(device->CreateEvent());
}

void TierMoves::CopyLayer(int64_t layer, const BlockMove& move, Stream& copy_stream) {
  const bool to_cpu = move.to == Tier::kCpu;
  ops_->CopyKv(copy_stream, {.gpu = kv_->LayerView(Tier::kGpu, layer),
                             .cpu = kv_->LayerView(Tier::kCpu, layer),
                             .gpu_blocks = to_cpu ? move.source_blocks : move.destination_blocks,
                             .cpu_blocks = to_cpu ? move.destination_blocks : move.source_blocks,
                             .to_cpu = to_cpu});
}

void TierMoves::Begin(std::span<const BlockMove> moves, Stream& copy_stream) {
  if (moves.empty()) return;
  const StreamRange range(copy_stream, "moves between tiers");
  any_ = true;
  for (auto first = moves.begin(); first != moves.end();) {
    const auto turn =
        std::find_if(first, moves.end(), [&](const BlockMove& move) { return move.to != first->to; });
    for (size_t layer = 0; layer < moved_.size(); ++layer) {
      for (auto move = first; move != turn; ++move)
        CopyLayer(static_cast<int64_t>(layer), *move, copy_stream);
      copy_stream.Record(*moved_[layer]);
    }
    first = turn;
  }
}

void TierMoves::AwaitLayer(int64_t layer, Stream& compute_stream) const {
  if (any_) compute_stream.Wait(*moved_[static_cast<size_t>(layer)]);
}

}  // namespace tandem
