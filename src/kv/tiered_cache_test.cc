#include "kv/tiered_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/host/host_device.h"
#include "ops/ops.h"

namespace tandem {
namespace {

TieredCacheOptions SmallOptions() {
  return {.num_layers = 3,
          .shape = {.dtype = DType::kBF16, .block_size = 4, .num_kv_heads = 2, .head_dim = 8},
          .gpu_blocks = 12,
          .cpu_blocks = 20,
          .cpu_parts = 1};
}

class TieredCacheTest : public ::testing::Test {
 protected:
  TieredCacheTest() {
    auto cache = TieredCache::Create(device_.get(), SmallOptions());
    EXPECT_TRUE(cache.ok());
    cache_ = std::move(cache).value();
  }
  std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
  std::unique_ptr<TieredCache> cache_;
};

TEST_F(TieredCacheTest, ReserveGrowsAndFailsWithoutChange) {
  EXPECT_TRUE(cache_->Reserve(1, Tier::kGpu, 9));
  EXPECT_EQ(cache_->held_blocks(1), 3);
  EXPECT_TRUE(cache_->Reserve(1, Tier::kGpu, 12));
  EXPECT_EQ(cache_->held_blocks(1), 3);
  EXPECT_TRUE(cache_->Reserve(1, Tier::kGpu, 13));
  EXPECT_EQ(cache_->held_blocks(1), 4);
  EXPECT_FALSE(cache_->Reserve(2, Tier::kGpu, 33));
  EXPECT_EQ(cache_->held_blocks(2), 0);
  EXPECT_FALSE(cache_->tier_of(2).has_value());
  EXPECT_EQ(cache_->free_blocks(Tier::kGpu), 8);
  EXPECT_TRUE(cache_->Reserve(2, Tier::kGpu, 32));
  EXPECT_EQ(cache_->free_blocks(Tier::kGpu), 0);
  cache_->Release(1);
  cache_->Release(1);
  EXPECT_EQ(cache_->free_blocks(Tier::kGpu), 4);
  EXPECT_EQ(cache_->SlotOf(2, 5), cache_->block_table(2)[1] * 4 + 1);
}

TEST_F(TieredCacheTest, MoveCarriesEveryByteOfEveryLayer) {
  ASSERT_TRUE(cache_->Reserve(9, Tier::kGpu, 11));
  const size_t block_bytes = SmallOptions().shape.BlockBytes();
  const auto byte_of = [](int64_t layer, size_t index) {
    return static_cast<int>(16 * layer + static_cast<int64_t>(index) + 1);
  };
  for (int64_t layer = 0; layer < 3; ++layer) {
    auto* base = static_cast<std::byte*>(cache_->LayerView(Tier::kGpu, layer).data);
    for (size_t i = 0; i < 3; ++i) {
      std::memset(base + static_cast<size_t>(cache_->block_table(9)[i]) * block_bytes, byte_of(layer, i),
                  block_bytes);
    }
  }
  const auto ops = CreateHostOps();
  auto stream = device_->CreateStream(StreamKind::kCopy, "copy");
  ASSERT_TRUE(cache_->Move(9, Tier::kCpu, *ops, *stream));
  stream->Synchronize();
  EXPECT_EQ(cache_->tier_of(9), Tier::kCpu);
  EXPECT_EQ(cache_->free_blocks(Tier::kGpu), 12);
  EXPECT_EQ(cache_->free_blocks(Tier::kCpu), 17);
  EXPECT_EQ(cache_->in_flight_blocks(Tier::kGpu), 0);
  for (int64_t layer = 0; layer < 3; ++layer) {
    const auto* base = static_cast<const unsigned char*>(cache_->LayerView(Tier::kCpu, layer).data);
    for (size_t i = 0; i < 3; ++i) {
      const auto* block = base + static_cast<size_t>(cache_->block_table(9)[i]) * block_bytes;
      for (size_t byte = 0; byte < block_bytes; ++byte) ASSERT_EQ(block[byte], byte_of(layer, i));
    }
  }
}

TEST(TieredCachePartsTest, HeadsLieInTheirPart) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  const KvShape shape{.dtype = DType::kBF16, .block_size = 4, .num_kv_heads = 3, .head_dim = 8};
  for (const int64_t parts : {1, 2, 3, 9}) {
    auto created = TieredCache::Create(
        device.get(),
        {.num_layers = 2, .shape = shape, .gpu_blocks = 5, .cpu_blocks = 7, .cpu_parts = parts});
    ASSERT_TRUE(created.ok()) << created.error().message;
    const TieredCache& cache = **created;
    EXPECT_EQ(cache.layout(Tier::kGpu).parts.num_parts, 1);
    EXPECT_EQ(cache.layout(Tier::kCpu).parts.num_parts, std::min<int64_t>(parts, 3));
    for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
      const TierLayout& layout = cache.layout(tier);
      std::set<std::byte*> heads;
      for (int64_t layer = 0; layer < 2; ++layer) {
        const KvLayerView view = cache.LayerView(tier, layer);
        EXPECT_EQ(view.heads_per_part, layout.parts.num_parts > 1 ? layout.parts.heads_per_part : 0);
        EXPECT_EQ(view.part_stride_bytes, layout.parts.num_parts > 1 ? layout.PartStrideBytes() : 0U);
        auto* memory = static_cast<std::byte*>(cache.LayerView(tier, 0).data);
        for (int64_t block = 0; block < view.num_blocks; ++block) {
          for (int64_t head = 0; head < 3; ++head) {
            std::byte* address = view.Head(block, head);
            heads.insert(address);
            std::memset(address, 1, shape.HeadBytes());
            const auto part = static_cast<size_t>(head / layout.parts.heads_per_part);
            EXPECT_GE(address, memory + part * layout.PartStrideBytes());
            EXPECT_LE(address + shape.HeadBytes(), memory + (part + 1) * layout.PartStrideBytes());
          }
        }
      }
      // Distinct, and apart by at least a head.
      EXPECT_EQ(heads.size(), static_cast<size_t>(2 * layout.num_blocks * 3));
      for (auto a = heads.begin(), b = std::next(a); b != heads.end(); ++a, ++b) {
        EXPECT_GE(*b - *a, static_cast<std::ptrdiff_t>(shape.HeadBytes()));
      }
    }
  }
}

TEST(TieredCachePartsTest, LargePartsStartAtHugePages) {
  const KvShape shape{.dtype = DType::kBF16, .block_size = 32, .num_kv_heads = 3, .head_dim = 64};
  const TierLayout small = TierLayout::Of(shape, 1, 3, 2);
  EXPECT_EQ(small.PartBlockBytes(), 2 * shape.HeadBytes());
  EXPECT_EQ(small.PartStrideBytes() % 4096, 0U);
  EXPECT_LT(small.PartStrideBytes(), size_t{2} << 20);
  EXPECT_EQ(small.HeadsOf(0), 2);
  EXPECT_EQ(small.HeadsOf(1), 1);
  const TierLayout large = TierLayout::Of(shape, 7, 999, 2);
  EXPECT_EQ(large.PartStrideBytes() % (size_t{2} << 20), 0U);
  EXPECT_EQ(large.TotalBytes(), 2 * large.PartStrideBytes());
  EXPECT_FALSE(TierLayout::Of(shape, 7, int64_t{1} << 60, 2).TotalBytes().has_value());
  // As many blocks as fit, to the byte.
  for (const int64_t parts : {1, 2, 3}) {
    for (const int64_t size_bytes : {int64_t{100} << 10, int64_t{9} << 20, (int64_t{33} << 20) + 17}) {
      TierLayout layout = TierLayout::Of(shape, 2, 0, parts);
      layout.num_blocks = MaxBlocksWithin(layout, size_bytes);
      EXPECT_LE(layout.TotalBytes().value(), static_cast<size_t>(size_bytes));
      ++layout.num_blocks;
      EXPECT_GT(layout.TotalBytes().value(), static_cast<size_t>(size_bytes));
    }
  }
}

TEST(TieredCacheErrorTest, NamesTierFlagWantedAndAvailable) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  TieredCacheOptions options = SmallOptions();
  options.shape.head_dim = 128;
  options.shape.block_size = 32;
  options.cpu_blocks = 40'000'000;  // 4.6 TiB
  const auto too_large = TieredCache::Create(device.get(), options);
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(too_large.error().param, "cpu-kv-cache");
  const std::string wanted = fmt::format("{} MiB wanted", *options.LayoutOf(Tier::kCpu).TotalBytes() >> 20);
  for (const std::string& part : {std::string("cpu tier"), wanted, std::string("MiB available"),
                                  std::string("make --cpu-kv-cache smaller")}) {
    EXPECT_NE(too_large.error().message.find(part), std::string::npos) << too_large.error().message;
  }

  // More than a table can number, or than 64 bits can count.
  for (const int64_t blocks : {int64_t{1} << 31, int64_t{1} << 58}) {
    options = SmallOptions();
    options.gpu_blocks = blocks;
    const auto too_many = TieredCache::Create(device.get(), options);
    ASSERT_FALSE(too_many.ok());
    EXPECT_EQ(too_many.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(too_many.error().param, "gpu-kv-cache");
  }
}

// Memory is touched lazily; that must not let two tiers pass of which each fits alone.
TEST(TieredCacheErrorTest, TiersMustFitTogether) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  TieredCacheOptions options{
      .num_layers = 8,
      .shape = {.dtype = DType::kBF16, .block_size = 32, .num_kv_heads = 8, .head_dim = 128}};
  const auto free_bytes = static_cast<int64_t>(device->FreeBytes(MemoryKind::kDevice));
  const int64_t two_thirds = MaxBlocksWithin(options.LayoutOf(Tier::kGpu), free_bytes / 3 * 2);
  options.gpu_blocks = two_thirds;
  EXPECT_TRUE(TieredCache::Create(device.get(), options).ok());
  options.gpu_blocks = 0;
  options.cpu_blocks = two_thirds;
  EXPECT_TRUE(TieredCache::Create(device.get(), options).ok());
  options.gpu_blocks = two_thirds;
  const auto both = TieredCache::Create(device.get(), options);
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().param, "cpu-kv-cache");
}

}  // namespace
}  // namespace tandem
