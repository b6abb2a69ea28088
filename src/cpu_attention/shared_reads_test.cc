// One read for several rows: the bits are those of rows that read alone.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/sanitizers.h"
#include "cpu_attention/cpu_attention.h"
#include "cpu_attention/decode_testing.h"
#include "simd/isa_test_name.h"

namespace tandem {
namespace {

class SharedReadsTest : public testing::TestWithParam<CpuIsa> {
 protected:
  // Runs the batch with one read for many and without, compares, and returns the share of bytes that are
  // read.
  double ShareRead(const DecodeCase& c) {
    DecodeBatch batch(c, random_);
    DecodeShape shape = batch.shape();
    shape.most_readers = 1;
    DecodePlan apart(batch.sequences(), shape, attention_.num_threads());
    Run(&batch, &apart);
    const std::vector<std::byte> out = batch.out();
    const std::vector<float> lse = batch.lse();
    DecodePlan together(batch.sequences(), batch.shape(), attention_.num_threads());
    Run(&batch, &together);
    const std::string what =
        std::string(DTypeName(c.dtype)) + ", " + std::to_string(c.num_kv_heads) + " kv heads x " +
        std::to_string(c.group_size) + " of " + std::to_string(c.head_dim) + ", blocks of " +
        std::to_string(c.block_size) + ", window " + std::to_string(c.window) + ", " +
        std::to_string(c.contexts.size()) + " rows, first context " + std::to_string(c.contexts.front());
    EXPECT_EQ(batch.out(), out) << what;
    EXPECT_EQ(std::memcmp(batch.lse().data(), lse.data(), lse.size() * sizeof(float)), 0) << what;
    EXPECT_EQ(apart.kv_bytes(), together.attended_kv_bytes());
    return static_cast<double>(together.kv_bytes()) / static_cast<double>(apart.kv_bytes());
  }

  std::mt19937 random_{5};

 private:
  void Run(DecodeBatch* batch, DecodePlan* plan) {
    batch->PoisonOut();
    attention_.Submit({plan, batch->layer(), nullptr, 0, nullptr, 0});
    attention_.WaitIdle();
  }

  CpuAttention attention_{{.num_threads = 3, .pin = false, .isa = GetParam()}};
};

// 2 to 11 rows, so that queries fill less than a tile of AMX, more than one, and more than a run has rows.
TEST_P(SharedReadsTest, AnyNumberOfRowsAndGroups) {
  for (const DType dtype : kCacheTypes) {
    for (const int64_t group_size : {1, 3, 4, 8, 12}) {
      for (const size_t num_rows : {size_t{2}, size_t{3}, size_t{5}, size_t{8}, size_t{11}}) {
        if (kSanitized && (num_rows == 3 || group_size == 3)) continue;
        const DecodeCase c = {.dtype = dtype,
                              .row_dtype = num_rows % 2 == 0 || !IsFloatType(dtype) ? DType::kF32 : dtype,
                              .group_size = group_size,
                              .num_kv_heads = 2,
                              .head_dim = 64,
                              .contexts = std::vector<int64_t>(num_rows, 600),
                              .common_tokens = std::vector<int64_t>(num_rows, 600)};
        const double rows = static_cast<double>(num_rows);
        const double reads = num_rows > static_cast<size_t>(kRowsPerGroup) ? 2 : 1;
        EXPECT_DOUBLE_EQ(ShareRead(c), (reads * 512 + rows * 88) / (rows * 600));
      }
    }
  }
}

TEST_P(SharedReadsTest, RandomShapesLengthsAndBeginnings) {
  int num_shared = 0;
  constexpr int kRounds = kSanitized ? 15 : 40;
  for (int i = 0; i < kRounds; ++i) {
    const auto pick = [&](std::vector<int64_t> choices) { return choices[random_() % choices.size()]; };
    DecodeCase c;
    c.dtype = kCacheTypes[random_() % kCacheTypes.size()];
    c.row_dtype = random_() % 2 == 0 || !IsFloatType(c.dtype) ? DType::kF32 : c.dtype;
    c.group_size = pick({1, 2, 4, 7, 8, 24});
    c.num_kv_heads = pick({1, 2, 3, 5});
    c.head_dim = pick({16, 64, 80, 128});
    c.block_size = pick({16, 32, 48, 64, 128});
    c.window = random_() % 3 == 0 ? static_cast<int64_t>(600 + random_() % 1500) : 0;
    c.num_parts = pick({1, 1, 2});
    const auto rows = 2 + random_() % 9;
    for (size_t row = 0; row < rows; ++row) {
      c.contexts.push_back(static_cast<int64_t>(1 + random_() % 2500));
      c.common_tokens.push_back(static_cast<int64_t>(random_() % 4000));
    }
    if (ShareRead(c) < 1) ++num_shared;
  }
  EXPECT_GT(num_shared, kRounds / 3);
}

INSTANTIATE_TEST_SUITE_P(Isas, SharedReadsTest, testing::ValuesIn(SupportedCpuIsas()), IsaTestName);

}  // namespace
}  // namespace tandem
