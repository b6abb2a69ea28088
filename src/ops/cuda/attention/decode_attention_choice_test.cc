// Which decode kernel a GPU gets and how it is launched: no GPU is needed to know.
#include <gtest/gtest.h>

#include <cstdint>

#include "ops/cuda/attention/decode_attention.h"
#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/cuda_op_test_bench.h"

namespace tandem {
namespace {

KvShape ShapeOf(DType dtype, int64_t head_dim) {
  return {KvFormat::Of(dtype), kDecodeTileTokens, /*num_kv_heads=*/2, head_dim};
}

TEST(DecodeAttentionChoiceTest, TuringHasFp16) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t group : {1, 4, 8, 16}) {
      EXPECT_TRUE(
          DecodeAttentionSupports(ShapeOf(DType::kF16, head_dim), DType::kF16, 2 * group, kTuringTarget));
      EXPECT_TRUE(
          DecodeAttentionSupports(ShapeOf(DType::kBF16, head_dim), DType::kBF16, 2 * group, kAmpereTarget));
    }
    EXPECT_FALSE(DecodeAttentionSupports(ShapeOf(DType::kF16, head_dim), DType::kF16, 2 * 17, kTuringTarget));
    EXPECT_FALSE(DecodeAttentionSupports(ShapeOf(DType::kBF16, head_dim), DType::kBF16, 8, kTuringTarget));
    EXPECT_FALSE(DecodeAttentionSupports(ShapeOf(DType::kI8, head_dim), DType::kBF16, 8, kTuringTarget));
    EXPECT_TRUE(DecodeAttentionSupports(ShapeOf(DType::kI8, head_dim), DType::kF16, 8, kTuringTarget));
    EXPECT_TRUE(DecodeAttentionSupports(ShapeOf(DType::kF8E4M3, head_dim), DType::kF16, 16, kTuringTarget));
    EXPECT_TRUE(DecodeAttentionSupports(ShapeOf(DType::kI8, head_dim), DType::kF16, 8, kAmpereTarget));
  }
  EXPECT_FALSE(DecodeAttentionSupports(ShapeOf(DType::kF16, 256), DType::kF16, 8, kTuringTarget));
  EXPECT_TRUE(DecodeAttentionSupports(ShapeOf(DType::kF16, 256), DType::kF16, 8, kAmpereTarget));
  CudaTarget volta = kTuringTarget;
  volta.compute_capability = 70;
  EXPECT_FALSE(DecodeAttentionSupports(ShapeOf(DType::kF16, 128), DType::kF16, 8, volta));
}

TEST(DecodeAttentionChoiceTest, LaunchFitsTheSharedMemory) {
  for (const CudaTarget& target : {kTuringTarget, kAmpereTarget}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int64_t group : {1, 4, 8, 16}) {
        const DecodeLaunch launch = PlanDecodeLaunch(ShapeOf(DType::kF16, head_dim), 2 * group, target);
        EXPECT_EQ(launch.is_direct, target.compute_capability < 80);
        EXPECT_EQ(launch.num_ctas, target.num_sms);
        EXPECT_LE(launch.shared_bytes, static_cast<size_t>(target.max_shared_bytes_per_block));
        EXPECT_GE(launch.num_warps, 4) << "heads of " << head_dim << ", group " << group;
        EXPECT_LE(launch.num_warps, 16) << "their slots are counted by the lanes of a warp";
      }
    }
  }
  // Tiles in registers: what warps begin and end with is all that is in shared memory.
  EXPECT_EQ(PlanDecodeLaunch(ShapeOf(DType::kF16, 128), 16, kTuringTarget).num_warps, 8);
}

}  // namespace
}  // namespace tandem
