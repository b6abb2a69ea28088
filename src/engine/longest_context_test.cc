#include "engine/longest_context.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr int64_t kModel = 131'072;

TEST(LongestContextTest, ATierHoldsIt) {
  EXPECT_EQ(FindLongestContext(kModel, 200'000, 0, 0).tokens, kModel);
  EXPECT_EQ(FindLongestContext(kModel, 200'000, 0, 0).why, "the gpu tier holds it");
  const LongestContext through_transit = FindLongestContext(kModel, 16'000, 300'000, 140'000);
  EXPECT_EQ(through_transit.tokens, kModel);
  EXPECT_EQ(through_transit.why, "the cpu tier holds it and it passes through --kv-transit");
}

TEST(LongestContextTest, SaysWhatLimitsIt) {
  const LongestContext no_cpu_tier = FindLongestContext(kModel, 16'000, 0, 16'384);
  EXPECT_EQ(no_cpu_tier.tokens, 16'000);
  EXPECT_EQ(no_cpu_tier.why, "the gpu tier holds 16000 tokens (--gpu-kv-cache), and there is no cpu tier");
  const LongestContext short_transit = FindLongestContext(kModel, 16'000, 300'000, 16'384);
  EXPECT_EQ(short_transit.tokens, 16'384);
  EXPECT_EQ(short_transit.why,
            "the gpu tier holds 16000 tokens, and of a context in the cpu tier 16384 pass through the device "
            "(--kv-transit)");
  const LongestContext small_cpu_tier = FindLongestContext(kModel, 16'000, 50'016, 140'000);
  EXPECT_EQ(small_cpu_tier.tokens, 50'016);
  EXPECT_EQ(small_cpu_tier.why,
            "the gpu tier holds 16000 tokens and the cpu tier 50016 (--gpu-kv-cache, --cpu-kv-cache)");
}

TEST(TransitTokensTest, ByDefaultOneLongPromptOrTwoIterations) {
  const KvShape shape = {.format = KvFormat::Plain(DType::kBF16), .num_kv_heads = 8, .head_dim = 128};
  EngineOptions options;
  options.max_model_len = kModel;
  options.max_num_batched_tokens = 2048;
  EXPECT_EQ(TransitTokens(options, shape), 16'384);
  options.max_num_batched_tokens = 20'000;
  EXPECT_EQ(TransitTokens(options, shape), 40'000);
  options.kv_transit = CacheSize{.unit = CacheSize::Unit::kTokens, .amount = 131'050};
  EXPECT_EQ(TransitTokens(options, shape), 131'072);
  // 4 KiB a token and layer, twice.
  options.kv_transit = CacheSize{.unit = CacheSize::Unit::kBytes, .amount = int64_t{1} << 30};
  EXPECT_EQ(TransitTokens(options, shape), 131'072);
}

}  // namespace
}  // namespace tandem
