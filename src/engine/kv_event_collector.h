// Makes events for a fleet's routers of what the books say of the prefix cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/block_hash.h"
#include "kv/kv_books.h"
#include "kv/prefix_listener.h"
#include "kv_events/kv_event.h"
#include "request/request.h"

namespace tandem {

// Engine thread only.
class KvEventCollector : public PrefixListener {
 public:
  using FindRequest = std::function<const Request&(SequenceId)>;

  // find_request: of sequences whose blocks are stored.
  KvEventCollector(int64_t block_size, FindRequest find_request)
      : block_size_(block_size), find_request_(std::move(find_request)) {}

  void Stored(const StoredBlock& stored) override;
  void Copied(Tier tier, const BlockHash& hash) override;
  void Removed(Tier tier, const BlockHash& hash) override;
  void Cleared() override;

  // What has happened since the last call, in as few events as say it.
  KvEvents Take();

 private:
  // A block that can be found in a tier: what it is told with in the other one, by when its request may be
  // gone.
  struct Block {
    std::optional<BlockHash> before;
    std::vector<int32_t> token_ids;
    std::string cache_salt;  // of the first of a chain
    std::array<bool, kNumTiers> in_tier = {};
  };
  void TellStored(Tier tier, const BlockHash& hash, const Block& block);

  int64_t block_size_;
  FindRequest find_request_;
  std::unordered_map<BlockHash, Block, BlockHashBits> known_;
  KvEvents events_;
};

}  // namespace tandem
