// Who hears which blocks the prefix cache can find.
#pragma once

#include <cstdint>
#include <optional>

#include "base/block_hash.h"
#include "plan/iteration_plan.h"

namespace tandem {

// A block that can be found from now on.
struct StoredBlock {
  Tier tier = Tier::kGpu;
  BlockHash hash;
  std::optional<BlockHash> before;  // the block before it; absent: it is the first of a chain
  SequenceId sequence = 0;          // has it as block `index`
  int64_t index = 0;
};

// Called by KvBooks, on the engine thread, in the order in which things happen; must not change the books.
class PrefixListener {
 public:
  virtual ~PrefixListener() = default;
  virtual void Stored(const StoredBlock& block) = 0;
  // A block that can be found in the other tier can be found in this one too.
  virtual void Copied(Tier tier, const BlockHash& hash) = 0;
  // It cannot be found in this tier any more.
  virtual void Removed(Tier tier, const BlockHash& hash) = 0;
  // Nothing can be found any more.
  virtual void Cleared() = 0;
};

}  // namespace tandem
