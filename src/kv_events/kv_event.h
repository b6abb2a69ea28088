// What happens to the blocks that the prefix cache can find.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/iteration_plan.h"

namespace tandem {

struct KvEvent {
  enum class Kind {
    kStored,   // can be found from now on, in a tier
    kRemoved,  // can be found there no more
    kCleared,  // nothing can be found any more, in either tier
  };
  Kind kind = Kind::kCleared;
  Tier tier = Tier::kGpu;
  std::vector<uint64_t> block_hashes;  // kStored: of one chain, each block before the next
  // Of kStored: the block before the first; absent: it is the first of a chain.
  std::optional<uint64_t> parent_block_hash;
  std::vector<int32_t> token_ids;  // of all the blocks
  int64_t block_size = 0;          // tokens
  std::string cache_salt;          // of a chain whose first block is the first one here; empty: none
};

// Of an iteration, in the order in which it happened.
using KvEvents = std::vector<KvEvent>;

}  // namespace tandem
