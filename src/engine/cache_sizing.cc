#include "engine/cache_sizing.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/param_error.h"
#include "kv/tier_flag.h"

namespace tandem {
namespace {

constexpr int64_t kBytesPerMiB = int64_t{1} << 20;

// Memory that the model's user shares with everything else: a part of it, with a ceiling.
constexpr double kSharedMemoryShare = 0.25;
constexpr int64_t kSharedMemoryCeilingBytes = int64_t{4} << 30;
// Host memory beside a GPU: the page cache of the model's files and the program itself live there too.
constexpr double kHostMemoryShare = 0.5;

int64_t ShareOf(int64_t free_bytes, double share) {
  return static_cast<int64_t>(static_cast<double>(std::max<int64_t>(0, free_bytes)) * share);
}

Result<int64_t> BlocksOf(const CacheSize& size, const TierLayout& layout, std::string_view flag) {
  const int64_t block_size = layout.shape.block_size;
  const int64_t blocks = size.unit == CacheSize::Unit::kTokens ? (size.amount + block_size - 1) / block_size
                                                               : MaxBlocksWithin(layout, size.amount);
  if (blocks >= 1) return blocks;
  return MakeParamError(ErrorCode::kInvalidArgument, flag,
                        "--{} is too small: one block of {} tokens takes {} bytes, {} {} are given", flag,
                        block_size, layout.BytesPerBlock(), size.amount,
                        size.unit == CacheSize::Unit::kTokens ? "tokens" : "bytes");
}

// Text for people: MiB, rounded up.
std::string MiB(int64_t bytes) {
  return fmt::format("{} MiB", bytes / kBytesPerMiB + (bytes % kBytesPerMiB != 0 ? 1 : 0));
}

struct TierWish {
  Tier tier = Tier::kGpu;
  std::string_view flag;
  int64_t bytes = 0;
};

Result<int64_t> BytesOf(const TierLayout& layout, std::string_view flag) {
  if (const std::optional<size_t> bytes = layout.TotalBytes()) return static_cast<int64_t>(*bytes);
  return MakeParamError(ErrorCode::kResourceExhausted, flag,
                        "--{} wants {} blocks of {} tokens, more memory than any machine has", flag,
                        layout.num_blocks, layout.shape.block_size);
}

Status CheckRoom(const TierWish& wish, int64_t available_bytes) {
  if (wish.bytes <= available_bytes) return {};
  return MakeParamError(
      ErrorCode::kResourceExhausted, wish.flag,
      "not enough memory for the KV cache of the {} tier: {} wanted, {} MiB available; make --{} smaller",
      TierName(wish.tier), MiB(wish.bytes), available_bytes / kBytesPerMiB, wish.flag);
}

}  // namespace

FreeMemory::FreeMemory(const Device& device)
    : device_bytes(static_cast<int64_t>(device.FreeBytes(MemoryKind::kDevice))),
      pinned_bytes(static_cast<int64_t>(device.FreeBytes(MemoryKind::kPinned))),
      is_shared(device.KindsShareMemory()) {}

int64_t KvTokensWithin(const ModelConfig& config, const KvFormat& format, int64_t size_bytes) {
  KvCacheOptions cache;
  cache.num_layers = config.num_layers;
  cache.gpu.shape = {.format = format, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
  return MaxBlocksWithin(cache.LayoutOf(Tier::kGpu), size_bytes) * cache.gpu.shape.block_size;
}

int64_t DefaultBytesInSharedMemory(int64_t free_bytes) {
  return std::min(ShareOf(free_bytes, kSharedMemoryShare), kSharedMemoryCeilingBytes);
}

Result<KvCacheOptions> SizeCache(const EngineOptions& options, const ModelConfig& config,
                                 const KvFormats& formats, const FreeMemory& memory, size_t reserved_bytes) {
  KvCacheOptions cache;
  cache.num_layers = config.num_layers;
  cache.gpu.shape = {.format = formats.gpu, .num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
  cache.cpu.shape = cache.gpu.shape;
  cache.cpu.shape.format = formats.cpu;
  const int64_t device_bytes =
      std::max<int64_t>(0, memory.device_bytes - static_cast<int64_t>(reserved_bytes));

  TierWish gpu{.tier = Tier::kGpu, .flag = TierFlag(Tier::kGpu)};
  TierWish cpu{.tier = Tier::kCpu, .flag = TierFlag(Tier::kCpu)};
  if (options.cpu_kv_cache && options.cpu_kv_cache->amount > 0) {
    TANDEM_ASSIGN_OR_RETURN(cache.cpu.num_blocks,
                            BlocksOf(*options.cpu_kv_cache, cache.LayoutOf(Tier::kCpu), cpu.flag));
    TANDEM_ASSIGN_OR_RETURN(cpu.bytes, BytesOf(cache.LayoutOf(Tier::kCpu), cpu.flag));
    TANDEM_RETURN_IF_ERROR(CheckRoom(cpu, memory.pinned_bytes));
  }
  const int64_t left_bytes = memory.is_shared ? device_bytes - cpu.bytes : device_bytes;
  const int64_t default_bytes = memory.is_shared ? DefaultBytesInSharedMemory(left_bytes) : left_bytes;
  const CacheSize gpu_size =
      options.gpu_kv_cache.value_or(CacheSize{.unit = CacheSize::Unit::kBytes, .amount = default_bytes});
  auto gpu_blocks = BlocksOf(gpu_size, cache.LayoutOf(Tier::kGpu), gpu.flag);
  if (!gpu_blocks.ok() && !options.gpu_kv_cache) {
    return MakeParamError(
        ErrorCode::kResourceExhausted, gpu.flag,
        "not enough memory for the KV cache of the gpu tier: one block of {} tokens takes {}, {} MiB "
        "are available{}",
        cache.gpu.shape.block_size, MiB(static_cast<int64_t>(cache.LayoutOf(Tier::kGpu).BytesPerBlock())),
        std::max<int64_t>(0, left_bytes) / kBytesPerMiB,
        memory.is_shared ? fmt::format(" and a quarter of them is used unless --{} says otherwise", gpu.flag)
                         : "");
  }
  TANDEM_ASSIGN_OR_RETURN(cache.gpu.num_blocks, std::move(gpu_blocks));
  TANDEM_ASSIGN_OR_RETURN(gpu.bytes, BytesOf(cache.LayoutOf(Tier::kGpu), gpu.flag));
  TANDEM_RETURN_IF_ERROR(CheckRoom(gpu, device_bytes));
  if (gpu.bytes > left_bytes) {
    // Each fits alone.
    return MakeParamError(
        ErrorCode::kResourceExhausted, cpu.flag,
        "not enough memory for the KV caches of both tiers: {} wanted by --{}, {} by --{}, {} MiB "
        "available; make one of them smaller",
        MiB(gpu.bytes), gpu.flag, MiB(cpu.bytes), cpu.flag, device_bytes / kBytesPerMiB);
  }
  return cache;
}

int64_t DefaultBytesInHostMemory(int64_t free_bytes) {
  return ShareOf(free_bytes, kHostMemoryShare);
}

int64_t DefaultCpuCacheBytes(const FreeMemory& memory, int64_t gpu_cache_bytes) {
  return memory.is_shared ? DefaultBytesInSharedMemory(memory.pinned_bytes - gpu_cache_bytes)
                          : DefaultBytesInHostMemory(memory.pinned_bytes);
}

}  // namespace tandem
