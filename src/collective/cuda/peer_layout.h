// Where the inboxes and flags of a rank lie in its memory, which the others write.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/collective.h"

namespace tandem {

// One allocation for all channels: what processes give each other is a handle of a whole one.
class PeerLayout {
 public:
  // num_blocks: of a kernel at most, by channel.
  PeerLayout(int size, const std::array<int, kNumShardChannels>& num_blocks);

  size_t size_bytes() const { return size_bytes_; }
  // Of a rank whose memory begins there.
  std::byte* Inbox(std::byte* memory, ShardChannel channel) const {
    return memory + inboxes_[static_cast<size_t>(channel)];
  }
  uint32_t* Flags(std::byte* memory, ShardChannel channel) const {
    return reinterpret_cast<uint32_t*>(memory + flags_[static_cast<size_t>(channel)]);
  }

 private:
  std::array<size_t, kNumShardChannels> inboxes_ = {};
  std::array<size_t, kNumShardChannels> flags_ = {};
  size_t size_bytes_ = 0;
};

}  // namespace tandem
