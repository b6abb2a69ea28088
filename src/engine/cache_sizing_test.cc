#include "engine/cache_sizing.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string_view>

#include "engine/sized_device_testing.h"

namespace tandem {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// 4 layers of 4 heads: a block of 32 tokens takes 4 * 4 * 2 * 32 * 64 * 2 = 128 KiB.
ModelConfig SmallModel() {
  ModelConfig config;
  config.num_layers = 4;
  config.num_kv_heads = 4;
  config.head_dim = 64;
  return config;
}
constexpr int64_t kBlockBytes = 128 << 10;

CacheSize Bytes(int64_t amount) {
  return {.unit = CacheSize::Unit::kBytes, .amount = amount};
}
CacheSize Tokens(int64_t amount) {
  return {.unit = CacheSize::Unit::kTokens, .amount = amount};
}

Result<KvCacheOptions> Size(const Device& device, std::optional<CacheSize> gpu,
                            std::optional<CacheSize> cpu = std::nullopt, size_t reserved_bytes = 0) {
  EngineOptions options;
  options.gpu_kv_cache = gpu;
  options.cpu_kv_cache = cpu;
  return SizeCache(options, SmallModel(), {KvFormat::Plain(DType::kBF16), KvFormat::Plain(DType::kBF16)},
                   device, reserved_bytes);
}

void ExpectError(const Result<KvCacheOptions>& result, ErrorCode code, std::string_view param,
                 std::string_view text) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code);
  EXPECT_EQ(result.error().param, param);
  EXPECT_NE(result.error().message.find(text), std::string::npos) << result.error().message;
}

TEST(CacheSizingTest, FlagsDecide) {
  const SizedDevice device(8 * kGiB, 8 * kGiB, true);
  const auto bytes = Size(device, Bytes(10 * kBlockBytes + 1), Bytes(20 * kBlockBytes - 1));
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_EQ(bytes->gpu.num_blocks, 10);
  EXPECT_LE(bytes->cpu.num_blocks, 19);
  // With several NUMA nodes every part is rounded up to pages.
  EXPECT_GE(bytes->cpu.num_blocks, 19 - bytes->LayoutOf(Tier::kCpu).parts.num_parts);
  EXPECT_EQ(bytes->gpu.shape.block_size, KvShape{}.block_size);
  EXPECT_EQ(bytes->num_layers, 4);

  const auto tokens = Size(device, Tokens(26'400), Tokens(33));
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_EQ(tokens->gpu.num_blocks, 825);
  EXPECT_EQ(tokens->cpu.num_blocks, 2);
}

TEST(CacheSizingTest, EachTierHoldsWhatItsTypeLets) {
  const SizedDevice device(8 * kGiB, 8 * kGiB, false);
  EngineOptions options;
  options.gpu_kv_cache = Bytes(660 * kBlockBytes);
  options.cpu_kv_cache = Bytes(660 * kBlockBytes);
  const auto cache =
      SizeCache(options, SmallModel(), {KvFormat::Plain(DType::kBF16), KvFormat::Int8()}, device, 0);
  ASSERT_TRUE(cache.ok()) << cache.error().message;
  EXPECT_EQ(cache->gpu.num_blocks, 660);
  // 66 bytes for each 128: codes, and a scale of 2 bytes for each 64.
  EXPECT_LE(cache->cpu.num_blocks, 1280);
  EXPECT_GE(cache->cpu.num_blocks, 1280 - cache->LayoutOf(Tier::kCpu).parts.num_parts);
}

TEST(CacheSizingTest, MemoryOfItsOwnIsUsedUpBesideWhatIsReserved) {
  const SizedDevice device(10 * kGiB, 8 * kGiB, false);
  const auto all = Size(device, std::nullopt);
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all->gpu.num_blocks, 10 * kGiB / kBlockBytes);
  const auto rest = Size(device, std::nullopt, std::nullopt, size_t{4} << 30);
  ASSERT_TRUE(rest.ok()) << rest.error().message;
  EXPECT_EQ(rest->gpu.num_blocks, 6 * kGiB / kBlockBytes);
  ExpectError(Size(device, std::nullopt, std::nullopt, size_t{11} << 30), ErrorCode::kResourceExhausted,
              "gpu-kv-cache", "not enough memory");
  ExpectError(Size(device, Bytes(7 * kGiB), std::nullopt, size_t{4} << 30), ErrorCode::kResourceExhausted,
              "gpu-kv-cache", "7168 MiB wanted, 6144 MiB available");
}

TEST(CacheSizingTest, DefaultsComeFromTheMachine) {
  const SizedDevice device(8 * kGiB, 8 * kGiB, true);
  const auto quarter = Size(device, std::nullopt);
  ASSERT_TRUE(quarter.ok());
  EXPECT_EQ(quarter->gpu.num_blocks, 2 * kGiB / kBlockBytes);
  EXPECT_EQ(quarter->cpu.num_blocks, 0);
  const auto ceiling = Size(SizedDevice(800 * kGiB, 800 * kGiB, true), std::nullopt);
  ASSERT_TRUE(ceiling.ok());
  EXPECT_EQ(ceiling->gpu.num_blocks, 4 * kGiB / kBlockBytes);
  // What a flag gives to the cpu tier is not there for the default of the gpu tier.
  const auto beside = Size(device, std::nullopt, Bytes(4 * kGiB));
  ASSERT_TRUE(beside.ok());
  EXPECT_EQ(beside->gpu.num_blocks, kGiB / kBlockBytes);
  const auto apart = Size(SizedDevice(8 * kGiB, 8 * kGiB, false), std::nullopt, Bytes(4 * kGiB));
  ASSERT_TRUE(apart.ok());
  EXPECT_EQ(apart->gpu.num_blocks, 8 * kGiB / kBlockBytes);
  // A cpu tier of nothing is none.
  EXPECT_EQ(Size(device, std::nullopt, Bytes(0))->cpu.num_blocks, 0);
}

// What is said of a memory is what a tier of it holds.
TEST(CacheSizingTest, TokensWithinAMemoryAreThoseOfItsTier) {
  const KvFormats formats = {KvFormat::Int8(), KvFormat::Plain(DType::kBF16)};
  for (const int64_t size_bytes : {10 * kBlockBytes - 1, kGiB}) {
    EngineOptions options;
    options.gpu_kv_cache = Bytes(size_bytes);
    const auto cache = SizeCache(options, SmallModel(), formats, SizedDevice(8 * kGiB, 8 * kGiB, false), 0);
    ASSERT_TRUE(cache.ok()) << cache.error().message;
    EXPECT_EQ(KvTokensWithin(SmallModel(), formats.gpu, size_bytes), cache->gpu.num_blocks * 32);
  }
  EXPECT_EQ(KvTokensWithin(SmallModel(), KvFormat::Plain(DType::kBF16), 10 * kBlockBytes - 1), 9 * 32);
  EXPECT_EQ(KvTokensWithin(SmallModel(), KvFormat::Plain(DType::kBF16), 0), 0);
}

TEST(CacheSizingTest, DefaultCpuTier) {
  EXPECT_EQ(DefaultCpuCacheBytes(SizedDevice(8 * kGiB, 8 * kGiB, true), 4 * kGiB), kGiB);
  EXPECT_EQ(DefaultCpuCacheBytes(SizedDevice(800 * kGiB, 800 * kGiB, true), 4 * kGiB), 4 * kGiB);
  EXPECT_EQ(DefaultCpuCacheBytes(SizedDevice(2 * kGiB, 2 * kGiB, true), 4 * kGiB), 0);
  EXPECT_EQ(DefaultCpuCacheBytes(SizedDevice(80 * kGiB, 200 * kGiB, false), 60 * kGiB), 100 * kGiB);
}

TEST(CacheSizingTest, ErrorsNameFlagWantedAndAvailable) {
  const SizedDevice device(8 * kGiB, 8 * kGiB, true);
  ExpectError(
      Size(device, Bytes(kBlockBytes - 1)), ErrorCode::kInvalidArgument, "gpu-kv-cache",
      "--gpu-kv-cache is too small: one block of 32 tokens takes 131072 bytes, 131071 bytes are given");
  ExpectError(Size(device, Tokens(0)), ErrorCode::kInvalidArgument, "gpu-kv-cache", "0 tokens are given");
  ExpectError(Size(device, Tokens(32), Bytes(1)), ErrorCode::kInvalidArgument, "cpu-kv-cache", "too small");
  ExpectError(Size(device, Bytes(9 * kGiB)), ErrorCode::kResourceExhausted, "gpu-kv-cache",
              "the gpu tier: 9216 MiB wanted, 8192 MiB available; make --gpu-kv-cache smaller");
  ExpectError(Size(device, Tokens(32), Bytes(9 * kGiB)), ErrorCode::kResourceExhausted, "cpu-kv-cache",
              "the cpu tier: 9216 MiB wanted, 8192 MiB available; make --cpu-kv-cache smaller");
  // Sizes beyond what 64 bits can count in bytes.
  for (const int64_t tokens : {int64_t{1} << 55, int64_t{9'000'000'000'000'000'000}}) {
    ExpectError(Size(device, Tokens(tokens)), ErrorCode::kResourceExhausted, "gpu-kv-cache",
                "--gpu-kv-cache");
    ExpectError(Size(device, Tokens(32), Tokens(tokens)), ErrorCode::kResourceExhausted, "cpu-kv-cache",
                "--cpu-kv-cache");
  }
  const SizedDevice tiny(kBlockBytes, kBlockBytes, true);
  ExpectError(Size(tiny, std::nullopt), ErrorCode::kResourceExhausted, "gpu-kv-cache",
              "one block of 32 tokens takes 1 MiB, 0 MiB are available");
}

TEST(CacheSizingTest, TiersMustFitTogetherWhereTheyShareMemory) {
  ExpectError(Size(SizedDevice(8 * kGiB, 8 * kGiB, true), Bytes(5 * kGiB), Bytes(4 * kGiB)),
              ErrorCode::kResourceExhausted, "cpu-kv-cache",
              "5120 MiB wanted by --gpu-kv-cache, 4096 MiB by --cpu-kv-cache, 8192 MiB available");
  EXPECT_TRUE(Size(SizedDevice(8 * kGiB, 8 * kGiB, false), Bytes(5 * kGiB), Bytes(4 * kGiB)).ok());
  EXPECT_TRUE(Size(SizedDevice(8 * kGiB, 8 * kGiB, true), Bytes(5 * kGiB), Bytes(3 * kGiB)).ok());
}

}  // namespace
}  // namespace tandem
