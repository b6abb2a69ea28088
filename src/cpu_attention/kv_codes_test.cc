#include "cpu_attention/kv_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cpu_attention/append_token.h"

namespace tandem {
namespace {

std::vector<float> NormalHead(int64_t head_dim, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(head_dim));
  for (float& value : x) value = normal(random);
  return x;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

TEST(KvCodesTest, RotationKeepsProductsAndIsItsOwnInverse) {
  std::mt19937 random(1);
  for (const int64_t head_dim : {16, 48, 64, 80, 96, 128, 256}) {
    const std::vector<float> q = NormalHead(head_dim, random);
    const std::vector<float> k = NormalHead(head_dim, random);
    std::vector<float> rotated_q = q;
    std::vector<float> rotated_k = k;
    RotateHead(rotated_q.data(), head_dim);
    RotateHead(rotated_k.data(), head_dim);
    EXPECT_NE(rotated_k, k);
    EXPECT_NEAR(Dot(rotated_q, rotated_k), Dot(q, k), 1e-4) << head_dim;
    RotateHead(rotated_k.data(), head_dim);
    for (size_t d = 0; d < k.size(); ++d) EXPECT_NEAR(rotated_k[d], k[d], 1e-5) << head_dim;
  }
}

TEST(KvCodesTest, CodesAreNearestAndScalesFit) {
  std::mt19937 random(2);
  for (const bool is_key : {true, false}) {
    for (const float magnitude : {1e-30F, 1e-4F, 1.0F, 300.0F, 1e30F}) {
      std::vector<float> x = NormalHead(96, random);
      for (float& value : x) value *= magnitude;
      std::vector<uint8_t> bytes(x.size());
      const float step = BF16ToF32(EncodeHead(KvCode::kInt8, is_key, x.data(), 96, bytes.data()));
      float largest = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const float number = NumberOf(KvCode::kInt8, is_key, bytes[i]);
        largest = std::max(largest, std::abs(number));
        // The largest may be a quarter of a step beyond the last code.
        EXPECT_LE(std::abs(number * step - x[i]), 0.5001F * step);
      }
      EXPECT_EQ(largest, 127.0F);
    }
    for (const KvCode code : {KvCode::kInt8, KvCode::kE4M3}) {
      const std::vector<float> zeros(32);
      std::vector<uint8_t> bytes(32, 1);
      EXPECT_EQ(EncodeHead(code, is_key, zeros.data(), 32, bytes.data()), 0);
      for (const uint8_t byte : bytes) EXPECT_EQ(NumberOf(code, is_key, byte), 0.0F);
    }
  }
}

// Four significant bits, the largest number between 240 and 448, and scales that are powers of two.
TEST(KvCodesTest, NumbersOfFp8AreNearestAndScalesArePowersOfTwo) {
  std::mt19937 random(5);
  for (const float magnitude : {1e-29F, 1e-4F, 1.0F, 300.0F, 1e30F}) {
    std::vector<float> x = NormalHead(96, random);
    for (float& value : x) value *= magnitude;
    x[7] *= 100.0F;
    std::vector<uint8_t> bytes(x.size());
    const float step = BF16ToF32(EncodeHead(KvCode::kE4M3, true, x.data(), 96, bytes.data()));
    int exponent = 0;
    EXPECT_EQ(std::frexp(step, &exponent), 0.5F);
    float largest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float number = NumberOf(KvCode::kE4M3, true, bytes[i]);
      largest = std::max(largest, std::abs(number));
      EXPECT_LE(std::abs(number * step - x[i]), std::max(std::abs(x[i]) / 16.0F, 0x1p-10F * step));
    }
    EXPECT_GE(largest, 224.0F);
    EXPECT_LE(largest, 448.0F);
    std::vector<float> rounded = x;
    RoundHeadToFp8(false, rounded.data(), 96);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(rounded[i], NumberOf(KvCode::kE4M3, false, bytes[i]) * step);
    for (const bool is_key : {true, false}) {
      RoundHeadToFp8(is_key, rounded.data(), 96);
      std::vector<float> again = rounded;
      RoundHeadToFp8(is_key, again.data(), 96);
      EXPECT_EQ(again, rounded);
    }
  }
  EXPECT_EQ(StepOfE4M3(464.0F), 1.0F);
  EXPECT_EQ(StepOfE4M3(std::nextafter(464.0F, 500.0F)), 2.0F);
  EXPECT_EQ(StepOfE4M3(233.0F), 1.0F);
  EXPECT_EQ(StepOfE4M3(232.0F), 0.5F);
}

// A tier of the model's type beside one of fp8 holds what that holds, rounded to the type: at fp32 to the
// bit, and on the way back too.
TEST(KvCodesTest, NumbersOfFp8AreTheSameInEveryTier) {
  std::mt19937 random(6);
  const auto tier = [](const KvFormat& format, std::vector<std::byte>* memory) {
    const KvShape shape = {format, 32, 2, 48};
    memory->assign(shape.BlockBytes(), std::byte{0});
    return KvLayerView{memory->data(), shape, 1, 0, 0};
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<std::byte> fp8_memory;
    std::vector<std::byte> plain_memory;
    const KvLayerView fp8 = tier(KvFormat::Fp8(), &fp8_memory);
    const KvLayerView plain = tier(KvFormat::PlainOfFp8(dtype), &plain_memory);
    for (int32_t slot = 0; slot < 32; ++slot) {
      std::vector<float> k = NormalHead(96, random);
      const std::vector<float> v = NormalHead(96, random);
      k[5] *= 60.0F;
      AppendToken(fp8, slot, 0, 2, k.data(), v.data(), DType::kF32);
      AppendToken(plain, slot, 0, 2, k.data(), v.data(), DType::kF32);
      for (int64_t head = 0; head < 2; ++head) {
        std::vector<float> of_fp8(96);
        std::vector<float> of_plain(96);
        ReadToken(fp8, slot, head, of_fp8.data(), of_fp8.data() + 48);
        ReadToken(plain, slot, head, of_plain.data(), of_plain.data() + 48);
        for (size_t i = 0; i < of_fp8.size(); ++i) {
          const float rounded = dtype == DType::kBF16  ? BF16ToF32(F32ToBF16(of_fp8[i]))
                                : dtype == DType::kF16 ? F16ToF32(F32ToF16(of_fp8[i]))
                                                       : of_fp8[i];
          EXPECT_EQ(of_plain[i], rounded) << DTypeName(dtype) << ", slot " << slot << ", number " << i;
        }
      }
    }
  }
}

// One channel tens of times larger than the others, as keys have them: the score of a query that does not
// look at it.
TEST(KvCodesTest, AnOutlierChannelTakesNoCodesFromTheOthers) {
  constexpr int64_t kHeadDim = 128;
  const auto error = [&](KvCode code, bool rotated) {
    std::mt19937 random(3);
    double squares = 0;
    for (int i = 0; i < 200; ++i) {
      std::vector<float> k = NormalHead(kHeadDim, random);
      std::vector<float> q = NormalHead(kHeadDim, random);
      k[17] += 100.0F;
      const double expected = Dot(q, k);
      if (rotated) RotateHead(k.data(), kHeadDim);
      if (rotated) RotateHead(q.data(), kHeadDim);
      std::vector<uint8_t> bytes(k.size());
      const float step = BF16ToF32(EncodeHead(code, true, k.data(), kHeadDim, bytes.data()));
      for (size_t d = 0; d < k.size(); ++d) k[d] = step * NumberOf(code, true, bytes[d]);
      squares += std::pow(Dot(q, k) - expected, 2);
    }
    return std::sqrt(squares / 200);
  };
  EXPECT_LT(error(KvCode::kInt8, true), error(KvCode::kInt8, false) / 4);
  // Floats keep the small channels as they are, but err by a share of the large one.
  EXPECT_LT(error(KvCode::kE4M3, true), 1.1 * error(KvCode::kE4M3, false));
}

// The same channel is large in keys and queries, as it often is.
TEST(KvCodesTest, WhatKeysAndQueriesHaveInCommonIsNotWhereCodesErrMost) {
  constexpr int64_t kHeadDim = 128;
  const auto error = [&](bool rotated) {
    std::mt19937 random(7);
    double squares = 0;
    for (int i = 0; i < 200; ++i) {
      std::vector<float> k = NormalHead(kHeadDim, random);
      std::vector<float> q = NormalHead(kHeadDim, random);
      k[17] += 30.0F + std::normal_distribution<float>()(random);
      q[17] += 10.0F;
      const double expected = Dot(q, k);
      if (rotated) RotateHead(k.data(), kHeadDim);
      if (rotated) RotateHead(q.data(), kHeadDim);
      std::vector<uint8_t> bytes(k.size());
      const float step = BF16ToF32(EncodeHead(KvCode::kE4M3, true, k.data(), kHeadDim, bytes.data()));
      for (size_t d = 0; d < k.size(); ++d) k[d] = step * NumberOf(KvCode::kE4M3, true, bytes[d]);
      squares += std::pow(Dot(q, k) - expected, 2);
    }
    return std::sqrt(squares / 200);
  };
  EXPECT_LT(error(true), error(false) / 2);
}

// What a token's codes stand for, rounded as the other tier rounds it, has the same codes. Returns bytes that
// differ after one way there and back.
int64_t BytesThatChange(const KvFormat& format, int64_t head_dim, float outlier, float (*round)(float),
                        std::mt19937& random) {
  const KvShape shape = {format, 32, 2, head_dim};
  std::vector<std::byte> memory(shape.BlockBytes());
  const KvLayerView kv = {memory.data(), shape, 1, 0, 0};
  for (int32_t slot = 0; slot < 32; ++slot) {
    std::vector<float> k = NormalHead(2 * head_dim, random);
    const std::vector<float> v = NormalHead(2 * head_dim, random);
    k[3] += outlier;
    AppendToken(kv, slot, 0, 2, k.data(), v.data(), DType::kF32);
  }
  const std::vector<std::byte> before = memory;
  for (int32_t slot = 0; slot < 32; ++slot) {
    std::vector<float> k(static_cast<size_t>(2 * head_dim));
    std::vector<float> v(k.size());
    for (int64_t head = 0; head < 2; ++head)
      ReadToken(kv, slot, head, k.data() + head * head_dim, v.data() + head * head_dim);
    std::transform(k.begin(), k.end(), k.begin(), round);
    std::transform(v.begin(), v.end(), v.begin(), round);
    AppendToken(kv, slot, 0, 2, k.data(), v.data(), DType::kF32);
  }
  int64_t count = 0;
  for (size_t i = 0; i < memory.size(); ++i) count += memory[i] != before[i] ? 1 : 0;
  return count;
}

TEST(KvCodesTest, TokensThatMoveBackAndForthStayAsTheyAre) {
  std::mt19937 random(4);
  const auto exact = [](float x) { return x; };
  const auto bf16 = [](float x) { return BF16ToF32(F32ToBF16(x)); };
  const auto fp16 = [](float x) { return F16ToF32(F32ToF16(x)); };
  const KvFormat int8 = KvFormat::Int8();
  const KvFormat fp8 = KvFormat::Fp8();
  for (const int64_t head_dim : {64, 80, 128}) {
    for (const float outlier : {0.0F, 30.0F}) {
      EXPECT_EQ(BytesThatChange(int8, head_dim, outlier, exact, random), 0) << head_dim << ", " << outlier;
      EXPECT_EQ(BytesThatChange(int8, head_dim, outlier, fp16, random), 0) << head_dim << ", " << outlier;
      EXPECT_EQ(BytesThatChange(fp8, head_dim, outlier, exact, random), 0) << head_dim << ", " << outlier;
    }
    const int64_t all_bytes = 2 * 2 * 32 * (head_dim + 2);
    EXPECT_LT(BytesThatChange(int8, head_dim, 0, bf16, random), all_bytes / 500) << head_dim;
    EXPECT_LT(BytesThatChange(fp8, head_dim, 0, bf16, random), all_bytes / 20) << head_dim;
    // bf16 rounds the outlier by a part of a step of all the others.
    EXPECT_LT(BytesThatChange(int8, head_dim, 30.0F, bf16, random), all_bytes / 10) << head_dim;
  }
}

}  // namespace
}  // namespace tandem
