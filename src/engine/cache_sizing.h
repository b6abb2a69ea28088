// How many KV blocks each tier gets, from flags or from what the machine has.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "engine/engine_options.h"
#include "kv/tiered_cache.h"
#include "load/model_config.h"

namespace tandem {

// Fills gpu_blocks and cpu_blocks. Errors: kInvalidArgument with param, if a size holds not even one block.
Result<TieredCacheOptions> SizeCache(const EngineOptions& options, const ModelConfig& config, DType dtype,
                                     const Device& device);

}  // namespace tandem
