#include "engine/kv_formats.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

class KvFormatsTest : public ::testing::Test {
 protected:
  std::string ErrorOf(int64_t head_dim = 64) const {
    const auto formats = KvFormatsOf(options_, DType::kBF16, head_dim);
    if (formats.ok()) return "";
    return fmt::format("{} [{}]", formats.error().message, formats.error().param);
  }

  EngineOptions options_;
};

TEST_F(KvFormatsTest, EachTierHasATypeOfItsOwn) {
  auto formats = KvFormatsOf(options_, DType::kBF16, 64);
  ASSERT_TRUE(formats.ok());
  EXPECT_EQ(formats->gpu, KvFormat::Plain(DType::kBF16));
  EXPECT_EQ(formats->cpu, KvFormat::Plain(DType::kBF16));
  options_.cpu_kv_cache_dtype = "int8";
  formats = KvFormatsOf(options_, DType::kF32, 64);
  ASSERT_TRUE(formats.ok());
  EXPECT_EQ(formats->gpu, KvFormat::Plain(DType::kF32));
  EXPECT_EQ(formats->cpu, KvFormat::Int8());
  options_.kv_cache_dtype = "int8";
  formats = KvFormatsOf(options_, DType::kF32, 64);
  ASSERT_TRUE(formats.ok());
  EXPECT_EQ(formats->of(Tier::kGpu), KvFormat::Int8());
  EXPECT_EQ(formats->of(Tier::kCpu), KvFormat::Int8());
}

TEST_F(KvFormatsTest, BesideFp8TheModelsTypeHoldsItsNumbers) {
  options_.kv_cache_dtype = "fp8";
  auto formats = KvFormatsOf(options_, DType::kBF16, 64);
  ASSERT_TRUE(formats.ok());
  EXPECT_EQ(formats->gpu, KvFormat::Fp8());
  EXPECT_EQ(formats->cpu, KvFormat::PlainOfFp8(DType::kBF16));
  options_.cpu_kv_cache_dtype = "int8";
  formats = KvFormatsOf(options_, DType::kBF16, 64);
  ASSERT_TRUE(formats.ok());
  EXPECT_EQ(formats->gpu, KvFormat::Fp8());
  EXPECT_EQ(formats->cpu, KvFormat::Int8());
}

TEST_F(KvFormatsTest, WhatCannotBeSaysWhy) {
  options_.kv_cache_dtype = "int4";
  EXPECT_EQ(ErrorOf(), "--kv-cache-dtype: 'int4' is none of auto, fp8 and int8 [kv-cache-dtype]");
  options_.kv_cache_dtype = "fp8";
  EXPECT_EQ(ErrorOf(288),
            "--kv-cache-dtype: fp8 wants heads of a multiple of 16 and at most 256, the model's are of 288 "
            "[kv-cache-dtype]");
  options_.kv_cache_dtype = "auto";
  options_.cpu_kv_cache_dtype = "fp8";
  EXPECT_EQ(ErrorOf(),
            "--cpu-kv-cache-dtype: fp8 is for the gpu tier alone; auto and int8 are for the cpu tier "
            "[cpu-kv-cache-dtype]");
  options_.cpu_kv_cache_dtype = "bf16";
  EXPECT_EQ(ErrorOf(), "--cpu-kv-cache-dtype: 'bf16' is neither auto nor int8 [cpu-kv-cache-dtype]");
  options_.cpu_kv_cache_dtype = "int8";
  EXPECT_EQ(
      ErrorOf(72),
      "--cpu-kv-cache-dtype: int8 wants heads of a multiple of 16 and at most 256, the model's are of 72 "
      "[cpu-kv-cache-dtype]");
}

}  // namespace
}  // namespace tandem
