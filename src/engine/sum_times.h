// What sums over shards take, as bench_collectives has measured it: for one shard without the others.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "collective/lone_shard.h"

namespace tandem {

// Of num_shards shards, from a file that bench_collectives has printed: for each size the fastest way, in a
// graph where that was measured. By rising size. Errors, with param lone-shard: kNotFound, kIo,
// kMalformedFile, kInvalidArgument (of another number of shards).
Result<std::vector<SumTime>> ReadSumTimes(const std::string& path, int64_t num_shards);

}  // namespace tandem
