#include "kv/tiered_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "device/host/host_device.h"

namespace tandem {
namespace {

TieredCacheOptions SmallOptions() {
  return {.num_layers = 3,
          .shape = {.dtype = DType::kBF16, .block_size = 4, .num_kv_heads = 2, .head_dim = 8},
          .gpu_blocks = 12,
          .cpu_blocks = 20};
}

class TieredCacheTest : public ::testing::Test {
 protected:
  TieredCacheTest() {
    auto cache = TieredCache::Create(device_.get(), SmallOptions());
    EXPECT_TRUE(cache.ok());
    cache_ = std::move(cache).value();
  }
  std::unique_ptr<Device> device_ =
      CreateHostDevice({.num_compute_threads = 1, .num_cpu_attention_threads = 1});
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
  auto stream = device_->CreateStream(StreamKind::kCopy, "copy");
  ASSERT_TRUE(cache_->Move(9, Tier::kCpu, *stream));
  stream->Synchronize();
  EXPECT_EQ(cache_->tier_of(9), Tier::kCpu);
  EXPECT_EQ(cache_->free_blocks(Tier::kGpu), 12);
  EXPECT_EQ(cache_->free_blocks(Tier::kCpu), 17);
  for (int64_t layer = 0; layer < 3; ++layer) {
    const auto* base = static_cast<const unsigned char*>(cache_->LayerView(Tier::kCpu, layer).data);
    for (size_t i = 0; i < 3; ++i) {
      const auto* block = base + static_cast<size_t>(cache_->block_table(9)[i]) * block_bytes;
      for (size_t byte = 0; byte < block_bytes; ++byte) ASSERT_EQ(block[byte], byte_of(layer, i));
    }
  }
}

// Random reserve / grow / release / move: no block has two owners, free plus held is always the total.
TEST_F(TieredCacheTest, BooksStayExactUnderRandomUse) {
  auto stream = device_->CreateStream(StreamKind::kCopy, "copy");
  std::mt19937 random(7);
  std::map<SequenceId, int64_t> tokens;
  for (int step = 0; step < 20000; ++step) {
    const SequenceId id = random() % 8;
    const auto tier = cache_->tier_of(id);
    switch (random() % 4) {
      case 0:
      case 1: {
        const int64_t wanted = tokens[id] + 1 + static_cast<int64_t>(random() % 9);
        const Tier where = tier.value_or(random() % 2 == 0 ? Tier::kGpu : Tier::kCpu);
        const int64_t free_before = cache_->free_blocks(where);
        const int64_t missing = cache_->BlocksFor(wanted) - cache_->held_blocks(id);
        ASSERT_EQ(cache_->Reserve(id, where, wanted), missing <= free_before);
        if (missing <= free_before) tokens[id] = wanted;
        break;
      }
      case 2:
        cache_->Release(id);
        tokens[id] = 0;
        break;
      default:
        if (tier) {
          const Tier to = *tier == Tier::kGpu ? Tier::kCpu : Tier::kGpu;
          const bool fits = cache_->held_blocks(id) <= cache_->free_blocks(to);
          ASSERT_EQ(cache_->Move(id, to, *stream), fits);
        }
    }
    for (const Tier where : {Tier::kGpu, Tier::kCpu}) {
      std::set<int32_t> owned;
      int64_t held = 0;
      for (SequenceId sequence = 0; sequence < 8; ++sequence) {
        if (cache_->tier_of(sequence) != where) continue;
        held += cache_->held_blocks(sequence);
        owned.insert(cache_->block_table(sequence).begin(), cache_->block_table(sequence).end());
      }
      ASSERT_EQ(static_cast<int64_t>(owned.size()), held);
      ASSERT_EQ(held + cache_->free_blocks(where), cache_->total_blocks(where));
    }
  }
  stream->Synchronize();
}

}  // namespace
}  // namespace tandem
