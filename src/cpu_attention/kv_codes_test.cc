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
  for (const float magnitude : {1e-30F, 1e-4F, 1.0F, 300.0F, 1e30F}) {
    std::vector<float> x = NormalHead(96, random);
    for (float& value : x) value *= magnitude;
    std::vector<int8_t> codes(x.size());
    const float step = BF16ToF32(QuantizeHead(x.data(), 96, codes.data()));
    EXPECT_EQ(std::abs(*std::max_element(codes.begin(), codes.end(),
                                         [](int8_t a, int8_t b) { return std::abs(a) < std::abs(b); })),
              127);
    // The largest may be a quarter of a step beyond the last code.
    for (size_t i = 0; i < x.size(); ++i) EXPECT_LE(std::abs(codes[i] * step - x[i]), 0.5001F * step);
  }
  const std::vector<float> zeros(32);
  std::vector<int8_t> codes(32, 1);
  EXPECT_EQ(QuantizeHead(zeros.data(), 32, codes.data()), 0);
  EXPECT_EQ(codes, std::vector<int8_t>(32, 0));
}

// One channel tens of times larger than the others, as keys have them: the score of a query that does not
// look at it.
TEST(KvCodesTest, AnOutlierChannelTakesNoCodesFromTheOthers) {
  std::mt19937 random(3);
  constexpr int64_t kHeadDim = 128;
  const auto error = [&](bool rotated) {
    double squares = 0;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> k = NormalHead(kHeadDim, random);
      std::vector<float> q = NormalHead(kHeadDim, random);
      k[17] += 100.0F;
      const double expected = Dot(q, k);
      if (rotated) RotateHead(k.data(), kHeadDim);
      if (rotated) RotateHead(q.data(), kHeadDim);
      std::vector<int8_t> codes(k.size());
      const float step = BF16ToF32(QuantizeHead(k.data(), kHeadDim, codes.data()));
      for (size_t d = 0; d < k.size(); ++d) k[d] = step * codes[d];
      squares += std::pow(Dot(q, k) - expected, 2);
    }
    return std::sqrt(squares / 50);
  };
  const double plain = error(false);
  EXPECT_LT(error(true), plain / 4);
}

// What a token's codes stand for, rounded as the other tier rounds it, has the same codes. Returns bytes that
// differ after one way there and back.
int64_t BytesThatChange(int64_t head_dim, float outlier, float (*round)(float), std::mt19937& random) {
  const KvShape shape = {KvFormat::Int8(), 32, 2, head_dim};
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
  for (const int64_t head_dim : {64, 80, 128}) {
    for (const float outlier : {0.0F, 30.0F}) {
      EXPECT_EQ(BytesThatChange(head_dim, outlier, exact, random), 0) << head_dim << ", " << outlier;
      EXPECT_EQ(BytesThatChange(head_dim, outlier, fp16, random), 0) << head_dim << ", " << outlier;
    }
    const int64_t all_bytes = 2 * 2 * 32 * (head_dim + 2);
    EXPECT_LT(BytesThatChange(head_dim, 0, bf16, random), all_bytes / 500) << head_dim;
    // bf16 rounds the outlier by a part of a step of all the others.
    EXPECT_LT(BytesThatChange(head_dim, 30.0F, bf16, random), all_bytes / 10) << head_dim;
  }
}

}  // namespace
}  // namespace tandem
