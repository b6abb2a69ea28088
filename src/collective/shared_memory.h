// Exchange between the shards of one process on the host backend: each shard's stream reads and writes the
// memory of the others.
#pragma once

#include <chrono>
#include <memory>

#include "collective/collective.h"

namespace tandem {

struct SharedMemoryOptions {
  int num_shards = 1;
  // For which a shard waits for another one.
  std::chrono::milliseconds timeout{10'000};
};

// For streams of host devices. The group outlives them.
std::unique_ptr<CollectiveGroup> CreateSharedMemoryGroup(const SharedMemoryOptions& options);

}  // namespace tandem
