// A benchmark's request as an engine in this process takes it, and how it ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "engine/engine.h"

namespace tandem {

// For the seed of the prompts of a warm-up, by exclusive or: they differ from those of the run, whose
// prefixes a cache might otherwise know.
inline constexpr uint64_t kWarmupPromptSeed = 0x5851f42d4c957f2dU;

// Exactly the request's number of output tokens, greedily.
RequestSpec MakeBenchRequest(const WorkloadRequest& request, std::vector<int32_t> prompt);

// Why a request with a finish reason has failed; empty if it has not.
std::string ReasonOfFailure(const RequestOutput& output);

// Bytes of K and V of all layers.
int64_t KvBytesPerToken(const Engine& engine);

}  // namespace tandem
