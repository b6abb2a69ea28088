// How many KV blocks each tier gets, from flags or from what the machine has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "engine/engine_options.h"
#include "engine/kv_formats.h"
#include "kv/kv_cache_options.h"
#include "load/model_config.h"

namespace tandem {

// What could be allocated, as Device says.
struct FreeMemory {
  FreeMemory(const Device& device);  // NOLINT: of one device
  int64_t device_bytes = 0;
  int64_t pinned_bytes = 0;
  bool is_shared = false;  // both are the same memory
};

// Fills everything but cpu_parts. A size in tokens is rounded up to blocks, one in bytes down. Without
// --gpu-kv-cache the gpu tier takes what the device has left beside reserved_bytes (activations and the like,
// still to be allocated), or, where both tiers share one memory, a quarter of it, 4 GiB at most; without
// --cpu-kv-cache there is no cpu tier. Errors name the flag (param): kInvalidArgument if a size holds not
// even one block, kResourceExhausted if a tier, or both together, want more memory than there is.
Result<KvCacheOptions> SizeCache(const EngineOptions& options, const ModelConfig& config,
                                 const KvFormats& formats, const FreeMemory& memory, size_t reserved_bytes);

// Tokens of KV of this format, in whole blocks, that size_bytes hold: as SizeCache counts them.
int64_t KvTokensWithin(const ModelConfig& config, const KvFormat& format, int64_t size_bytes);

// The gpu tier where both tiers share one memory of which free_bytes are left: a quarter, 4 GiB at most.
int64_t DefaultBytesInSharedMemory(int64_t free_bytes);

// The cpu tier beside a GPU with memory of its own, of a host with free_bytes left: half of them.
int64_t DefaultBytesInHostMemory(int64_t free_bytes);

// The cpu tier for a strategy that uses it, beside a gpu tier of gpu_cache_bytes that is not allocated yet:
// half of the free host memory; where both tiers share one memory, what the gpu tier leaves of it by the rule
// of the gpu tier (a quarter, 4 GiB at most).
int64_t DefaultCpuCacheBytes(const FreeMemory& memory, int64_t gpu_cache_bytes);

}  // namespace tandem
