// One shard of several without the others, which are taken to be equal: for what a model takes that needs
// more GPUs than there are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "device/device.h"

namespace tandem {

// What a sum of values of so many bytes takes over all shards.
struct SumTime {
  int64_t size_bytes = 0;
  double us = 0;
};

// Between two sizes in proportion; beyond the largest as many bytes a second, below the smallest as it.
// times: one at least, by rising size.
double SumUs(const std::vector<SumTime>& times, int64_t size_bytes);

struct LoneShardOptions {
  int num_shards = 2;
  std::vector<SumTime> times;  // as SumUs takes them
};

// Of shard 0, the only one. Each exchange takes the stream as long as a sum of as many bytes: AllReduce adds
// nothing, AllGather gives the others this shard's columns, Broadcast and Min leave what there is. Errors:
// kResourceExhausted.
Result<std::unique_ptr<CollectiveGroup>> CreateLoneShard(Device* device, const LoneShardOptions& options);

}  // namespace tandem
