#include "engine/cache_sizing.h"

#include <algorithm>
#include <string>

#include "base/param_error.h"

namespace tandem {
namespace {

constexpr int64_t kBlockSize =
    32;  // tokens; design: large enough for a prefetch, small enough to waste little
// Share of the free memory that the gpu tier of the host backend takes unless a flag says otherwise, and its
// ceiling: the memory belongs to other programs too.
constexpr double kDefaultShare = 0.25;
constexpr int64_t kDefaultCeilingBytes = int64_t{4} << 30;

Result<int64_t> BlocksOf(const CacheSize& size, int64_t bytes_per_block, const char* param) {
  const int64_t blocks = size.unit == CacheSize::Unit::kTokens ? (size.amount + kBlockSize - 1) / kBlockSize
                                                               : size.amount / bytes_per_block;
  if (blocks >= 1) return blocks;
  return MakeParamError(ErrorCode::kInvalidArgument, param,
                        "{} is too small: one block of {} tokens takes {} bytes", param, kBlockSize,
                        bytes_per_block);
}

}  // namespace

Result<TieredCacheOptions> SizeCache(const EngineOptions& options, const ModelConfig& config, DType dtype,
                                     const Device& device) {
  TieredCacheOptions cache;
  cache.num_layers = config.num_layers;
  cache.shape = {.dtype = dtype,
                 .block_size = kBlockSize,
                 .num_kv_heads = config.num_kv_heads,
                 .head_dim = config.head_dim};
  const int64_t bytes_per_block = config.num_layers * static_cast<int64_t>(cache.shape.BlockBytes());
  CacheSize gpu_size{.unit = CacheSize::Unit::kBytes, .amount = 0};
  if (options.gpu_kv_cache) {
    gpu_size = *options.gpu_kv_cache;
  } else {
    const auto free_bytes = static_cast<double>(device.FreeBytes(MemoryKind::kDevice));
    gpu_size.amount = std::min(static_cast<int64_t>(free_bytes * kDefaultShare), kDefaultCeilingBytes);
  }
  TANDEM_ASSIGN_OR_RETURN(cache.gpu_blocks, BlocksOf(gpu_size, bytes_per_block, "gpu-kv-cache"));
  if (options.cpu_kv_cache && options.cpu_kv_cache->amount > 0) {
    TANDEM_ASSIGN_OR_RETURN(cache.cpu_blocks,
                            BlocksOf(*options.cpu_kv_cache, bytes_per_block, "cpu-kv-cache"));
  }
  return cache;
}

}  // namespace tandem
