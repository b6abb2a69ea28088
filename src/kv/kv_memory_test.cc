#include "kv/kv_memory.h"

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
#include "kv/kv_cache_options.h"

namespace tandem {
namespace {

KvCacheOptions SmallOptions() {
  const KvShape shape = {
      .format = KvFormat::Plain(DType::kBF16), .block_size = 4, .num_kv_heads = 2, .head_dim = 8};
  return {.num_layers = 3,
          .gpu = {.shape = shape, .num_blocks = 12},
          .cpu = {.shape = shape, .num_blocks = 20},
          .cpu_parts = 1};
}

TEST(KvShapeTest, BytesFollowTheFormat) {
  KvShape shape = {
      .format = KvFormat::Plain(DType::kBF16), .block_size = 32, .num_kv_heads = 3, .head_dim = 64};
  EXPECT_EQ(shape.HeadBytes(), size_t{2 * 32 * 64 * 2});
  EXPECT_EQ(shape.plain_dtype(), DType::kBF16);
  shape.format = {.k_type = DType::kI8, .v_type = DType::kI4, .scales = ScaleKind::kPerToken};
  EXPECT_EQ(shape.KeyBytes(), size_t{32 * 64});
  EXPECT_EQ(shape.ValueBytes(), size_t{32 * 64 / 2});
  EXPECT_EQ(shape.ScaleBytes(), size_t{32 * 2});
  EXPECT_EQ(shape.HeadBytes(), size_t{32 * 64 + 32 * 64 / 2 + 2 * 32 * 2});
  EXPECT_EQ(shape.BlockBytes(), 3 * shape.HeadBytes());
}

TEST(KvShapeDeathTest, PlainTypeOfAFormatThatHasNone) {
  const KvShape mixed = {.format = {.k_type = DType::kI8, .v_type = DType::kI4}};
  EXPECT_DEATH(mixed.plain_dtype(), "K int8, V int4, no scales");
  const KvShape scaled = {
      .format = {.k_type = DType::kI8, .v_type = DType::kI8, .scales = ScaleKind::kPerToken}};
  EXPECT_DEATH(scaled.plain_dtype(), "one type without scales is wanted: int8");
  EXPECT_DEATH(DTypeSize(DType::kI4), "int4 has no whole bytes");
}

// Blocks lie where their own tier's format puts them.
TEST(KvMemoryTest, TiersMayHaveFormatsOfTheirOwn) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  KvCacheOptions options = SmallOptions();
  options.cpu.shape.format = {.k_type = DType::kI8, .v_type = DType::kI4, .scales = ScaleKind::kPerToken};
  options.cpu_parts = 2;
  auto created = KvMemory::Create(device.get(), options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    const KvLayerView view = (*created)->LayerView(tier, 1);
    EXPECT_EQ(view.shape, (*created)->layout(tier).shape);
    EXPECT_EQ(view.Head(5, 0) - view.Head(4, 0),
              static_cast<std::ptrdiff_t>(tier == Tier::kGpu ? 2 * (2 * 4 * 8 * 2)
                                                             : 4 * 8 + 4 * 8 / 2 + 2 * 4 * 2));
    std::memset(view.Head(view.num_blocks - 1, 1), 1, view.shape.HeadBytes());
  }
}

TEST(KvMemoryTest, TheCpuTierHasAPartForEachOfItsNodes) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  KvCacheOptions options = SmallOptions();
  options.cpu_parts = 0;
  options.cpu_nodes = {0};
  auto created = KvMemory::Create(device.get(), options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ((*created)->layout(Tier::kCpu).parts.num_parts, 1);
  const KvLayerView view = (*created)->LayerView(Tier::kCpu, 0);
  std::memset(view.Head(view.num_blocks - 1, 1), 1, view.shape.HeadBytes());
}

TEST(KvMemoryPartsTest, HeadsLieInTheirPart) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  const KvShape shape{
      .format = KvFormat::Plain(DType::kBF16), .block_size = 4, .num_kv_heads = 3, .head_dim = 8};
  for (const int64_t parts : {1, 2, 3, 9}) {
    const KvCacheOptions options = {.num_layers = 2,
                                    .gpu = {.shape = shape, .num_blocks = 5},
                                    .cpu = {.shape = shape, .num_blocks = 7},
                                    .cpu_parts = parts};
    auto created = KvMemory::Create(device.get(), options);
    ASSERT_TRUE(created.ok()) << created.error().message;
    const KvMemory& kv = **created;
    EXPECT_EQ(kv.layout(Tier::kGpu).parts.num_parts, 1);
    EXPECT_EQ(kv.layout(Tier::kCpu).parts.num_parts, std::min<int64_t>(parts, 3));
    for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
      const TierLayout& layout = kv.layout(tier);
      std::set<std::byte*> heads;
      for (int64_t layer = 0; layer < 2; ++layer) {
        const KvLayerView view = kv.LayerView(tier, layer);
        EXPECT_EQ(view.heads_per_part, layout.parts.num_parts > 1 ? layout.parts.heads_per_part : 0);
        EXPECT_EQ(view.part_stride_bytes, layout.parts.num_parts > 1 ? layout.PartStrideBytes() : 0U);
        auto* memory = static_cast<std::byte*>(kv.LayerView(tier, 0).data);
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

TEST(KvMemoryPartsTest, LargePartsStartAtHugePages) {
  const KvShape shape{
      .format = KvFormat::Plain(DType::kBF16), .block_size = 32, .num_kv_heads = 3, .head_dim = 64};
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

TEST(KvMemoryErrorTest, NamesTierFlagWantedAndAvailable) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  KvCacheOptions options = SmallOptions();
  for (KvShape* shape : {&options.gpu.shape, &options.cpu.shape}) {
    shape->head_dim = 128;
    shape->block_size = 32;
  }
  options.cpu.num_blocks = 40'000'000;  // 4.6 TiB
  const auto too_large = KvMemory::Create(device.get(), options);
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
    options.gpu.num_blocks = blocks;
    const auto too_many = KvMemory::Create(device.get(), options);
    ASSERT_FALSE(too_many.ok());
    EXPECT_EQ(too_many.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(too_many.error().param, "gpu-kv-cache");
  }
}

// Memory is touched lazily; that must not let two tiers pass of which each fits alone.
TEST(KvMemoryErrorTest, TiersMustFitTogether) {
  auto device = CreateHostDevice({.num_compute_threads = 1});
  KvCacheOptions options{.num_layers = 8};
  options.gpu.shape = {
      .format = KvFormat::Plain(DType::kBF16), .block_size = 32, .num_kv_heads = 8, .head_dim = 128};
  options.cpu.shape = options.gpu.shape;
  const auto free_bytes = static_cast<int64_t>(device->FreeBytes(MemoryKind::kDevice));
  const int64_t two_thirds = MaxBlocksWithin(options.LayoutOf(Tier::kGpu), free_bytes / 3 * 2);
  options.gpu.num_blocks = two_thirds;
  EXPECT_TRUE(KvMemory::Create(device.get(), options).ok());
  options.gpu.num_blocks = 0;
  options.cpu.num_blocks = two_thirds;
  EXPECT_TRUE(KvMemory::Create(device.get(), options).ok());
  options.gpu.num_blocks = two_thirds;
  const auto both = KvMemory::Create(device.get(), options);
  ASSERT_FALSE(both.ok());
  EXPECT_EQ(both.error().param, "cpu-kv-cache");
}

}  // namespace
}  // namespace tandem
