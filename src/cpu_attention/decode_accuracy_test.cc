// Every kernel against a double-precision reference.
#include <gtest/gtest.h>

#include "base/sanitizers.h"
#include "cpu_attention/cpu_attention.h"
#include "cpu_attention/decode_testing.h"
#include "simd/isa_test_name.h"

namespace tandem {
namespace {

// The reference reads the same codes. Of int8: what the kernels round to 16 bits costs little.
double Tolerance(const DecodeCase& c) {
  if (c.dtype == DType::kF32 || (c.dtype == DType::kF8E4M3 && c.row_dtype == DType::kF32)) return 1e-5;
  return c.dtype == DType::kI8 && c.row_dtype == DType::kF32 ? 5e-4 : 1e-2;
}

// What q, k, v and results are in if they are not fp32.
DType OwnRows(DType cache) {
  return IsFloatType(cache) ? cache : DType::kBF16;
}

class DecodeAccuracyTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void RunAndCheck(const DecodeCase& c) {
    DecodeBatch batch(c, random_);
    DecodePlan plan(batch.sequences(), batch.shape(), attention_.num_threads());
    attention_.Submit({&plan, batch.layer(), nullptr, 0, nullptr, 0});
    attention_.WaitIdle();
    EXPECT_LT(batch.WorstError(), Tolerance(c))
        << DTypeName(c.dtype) << " rows " << DTypeName(c.row_dtype) << ", " << c.num_kv_heads
        << " kv heads x " << c.group_size << " of " << c.head_dim << ", blocks of " << c.block_size
        << ", window " << c.window << ", " << c.num_parts << " parts, " << c.contexts.size()
        << " rows, first context " << c.contexts.front();
  }

  std::mt19937 random_{11};
  CpuAttention attention_{{.num_threads = 3, .pin = false, .isa = GetParam()}};
};

TEST_P(DecodeAccuracyTest, EveryHeadSizeAndGroup) {
  for (const DType dtype : kCacheTypes) {
    for (const int64_t head_dim : {64, 80, 96, 128, 256}) {
      for (int64_t group_size = 1; group_size <= 16; group_size += kSanitized ? 5 : 1) {
        RunAndCheck({.dtype = dtype,
                     .row_dtype = group_size % 2 == 0 ? OwnRows(dtype) : DType::kF32,
                     .group_size = group_size,
                     .num_kv_heads = 2,
                     .head_dim = head_dim,
                     .contexts = {1, 33, 200}});
      }
    }
  }
}

TEST_P(DecodeAccuracyTest, RandomShapesAndLengths) {
  for (int i = 0; i < (kSanitized ? 20 : 60); ++i) {
    const auto pick = [&](std::vector<int64_t> choices) { return choices[random_() % choices.size()]; };
    DecodeCase c;
    c.dtype = kCacheTypes[random_() % kCacheTypes.size()];
    c.row_dtype = random_() % 2 == 0 ? DType::kF32 : OwnRows(c.dtype);
    c.group_size = pick({1, 2, 3, 4, 5, 7, 8, 12, 16, 24});
    c.num_kv_heads = pick({1, 2, 3, 5, 8});
    c.head_dim = pick({16, 48, 64, 80, 96, 112, 128, 256});
    c.block_size = pick({16, 32, 48, 64, 128});
    c.window = random_() % 3 == 0 ? static_cast<int64_t>(1 + random_() % 700) : 0;
    c.num_parts = pick({1, 1, 2, 3});
    const auto rows = 1 + random_() % 6;
    // Lengths of every order of magnitude.
    for (size_t row = 0; row < rows; ++row)
      c.contexts.push_back(1 + random_() % (int64_t{1} << (1 + random_() % 11)));
    RunAndCheck(c);
  }
}

TEST_P(DecodeAccuracyTest, LongContexts) {
  for (const DType dtype : kCacheTypes) {
    RunAndCheck({.dtype = dtype,
                 .row_dtype = OwnRows(dtype),
                 .group_size = 4,
                 .num_kv_heads = 1,
                 .head_dim = 64,
                 .contexts = {32768, 1, 5000}});
  }
}

// Fetches are hints: whatever a trial chooses, the bits are the same.
TEST_P(DecodeAccuracyTest, SameBitsHoweverItFetches) {
  for (const DType dtype : kCacheTypes) {
    for (const int64_t block_size : {16, 32, 64}) {
      const DecodeCase c = {.dtype = dtype,
                            .row_dtype = OwnRows(dtype),
                            .group_size = 4,
                            .num_kv_heads = 3,
                            .head_dim = 64,
                            .block_size = block_size,
                            .contexts = {700, 33, 1}};
      DecodeBatch batch(c, random_);
      const auto run = [&](const AttentionFetch& fetch) {
        CpuAttention attention({.num_threads = 2, .pin = false, .isa = GetParam(), .fetch = fetch});
        batch.PoisonOut();
        DecodePlan plan(batch.sequences(), batch.shape(), attention.num_threads());
        attention.Submit({&plan, batch.layer(), nullptr, 0, nullptr, 0});
        attention.WaitIdle();
        return batch.out();
      };
      const std::vector<std::byte> expected = run({});
      EXPECT_LT(batch.WorstError(), Tolerance(c));
      for (const FetchLevel level : kFetchLevels) {
        for (const AttentionFetch fetch : {AttentionFetch{.level = level},
                                           {.level = level, .half_piece_ahead = true},
                                           {.level = level, .every_second_line = true}}) {
          EXPECT_EQ(run(fetch), expected)
              << DTypeName(dtype) << ", blocks of " << block_size << ", " << DescribeFetch(fetch);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, DecodeAccuracyTest, testing::ValuesIn(SupportedCpuIsas()), IsaTestName);

}  // namespace
}  // namespace tandem
