#include "collective/cuda/peer_layout.h"

#include "base/round_up.h"
#include "collective/cuda/peer_exchange.h"

namespace tandem {
namespace {

constexpr size_t kAlignment = 256;
// Of what the driver maps: memory of others is to share no page with it.
constexpr size_t kPageBytes = size_t{2} << 20;

}  // namespace

PeerLayout::PeerLayout(int size, const std::array<int, kNumShardChannels>& num_blocks) {
  const auto take = [this](size_t bytes) {
    const size_t at = size_bytes_;
    size_bytes_ = RoundUp(at + bytes, kAlignment);
    return at;
  };
  for (size_t i = 0; i < kNumShardChannels; ++i) {
    inboxes_[i] = take(PeerInboxBytes(size, num_blocks[i]));
    flags_[i] = take(static_cast<size_t>(size) * static_cast<size_t>(num_blocks[i]) * sizeof(uint32_t));
  }
  size_bytes_ = RoundUp(size_bytes_, kPageBytes);
}

}  // namespace tandem
