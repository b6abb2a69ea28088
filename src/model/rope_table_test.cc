#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/json_fields.h"
#include "load/rope_scaling.h"

namespace tandem {
namespace {

ModelConfig Config() {
  ModelConfig config;
  config.head_dim = 64;
  config.rope_theta = 500000.0;
  return config;
}

TEST(RopeTableTest, TableHoldsCosThenSinOfEveryAngle) {
  const ModelConfig config = Config();
  const std::vector<float> table = BuildRopeTable(config, 50);
  ASSERT_EQ(table.size(), 50U * 64U);
  for (size_t position : {0U, 1U, 49U}) {
    for (size_t pair = 0; pair < 32; ++pair) {
      const double angle =
          static_cast<double>(position) * std::pow(500000.0, -2.0 * static_cast<double>(pair) / 64.0);
      EXPECT_NEAR(table[position * 64 + pair], std::cos(angle), 1e-5);
      EXPECT_NEAR(table[position * 64 + 32 + pair], std::sin(angle), 1e-5);
    }
  }
}

TEST(RopeTableTest, LinearScalingDividesEveryFrequency) {
  ModelConfig config = Config();
  const std::vector<float> plain = RopeInverseFrequencies(config);
  config.rope_scaling = {.type = RopeScaling::Type::kLinear, .factor = 4.0};
  const std::vector<float> scaled = RopeInverseFrequencies(config);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(scaled[i], plain[i] / 4.0F);
}

// Llama 3.1: short wavelengths keep their frequency, long ones are divided by the factor, in between it is
// monotone.
TEST(RopeTableTest, Llama3ScalingKeepsHighAndStretchesLowFrequencies) {
  ModelConfig config = Config();
  const std::vector<float> plain = RopeInverseFrequencies(config);
  config.rope_scaling = {.type = RopeScaling::Type::kLlama3,
                         .factor = 8.0,
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_position = 8192};
  const std::vector<float> scaled = RopeInverseFrequencies(config);
  EXPECT_FLOAT_EQ(scaled.front(), plain.front());
  EXPECT_FLOAT_EQ(scaled.back(), plain.back() / 8.0F);
  int blended = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const float ratio = plain[i] / scaled[i];
    EXPECT_GE(ratio, 1.0F - 1e-6F);
    EXPECT_LE(ratio, 8.0F + 1e-5F);
    if (ratio > 1.001F && ratio < 7.99F) ++blended;
    if (i > 0) {
      EXPECT_GE(ratio, plain[i - 1] / scaled[i - 1] - 1e-5F);
    }
  }
  EXPECT_GT(blended, 0);
}

TEST(RopeTableTest, DivisorsOfTheFileWin) {
  ModelConfig config = Config();
  config.rope_freq_divisors.assign(32, 2.0F);
  config.rope_scaling = {.type = RopeScaling::Type::kLinear, .factor = 100.0};
  EXPECT_FLOAT_EQ(RopeInverseFrequencies(config)[0], 0.5F);
}

// tests/fixtures/rope/make_rope_fixture.py computed them from the published formulae.
TEST(RopeTableTest, ScaledFrequenciesAreThePublishedOnes) {
  std::ifstream file(std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/rope/rope.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GE(cases.size(), 8U);
  for (const nlohmann::json& each : cases) {
    const std::string name = each["rope_scaling"].dump();
    const auto scaling = ReadRopeScaling(JsonFields(each["rope_scaling"], name));
    ASSERT_TRUE(scaling.ok()) << scaling.error().message;
    ModelConfig config;
    config.head_dim = each["head_dim"];
    config.rope_theta = each["rope_theta"];
    config.rope_scaling = *scaling;
    const std::vector<float> frequencies = RopeInverseFrequencies(config);
    const std::vector<double> wanted = each["inverse_frequencies"];
    ASSERT_EQ(frequencies.size(), wanted.size()) << name;
    for (size_t pair = 0; pair < wanted.size(); ++pair)
      EXPECT_NEAR(frequencies[pair] / wanted[pair], 1.0, 1e-6) << name << " pair " << pair;
    EXPECT_NEAR(scaling->attention_factor, each["attention_factor"], 1e-9) << name;
    // cos of position 0 is 1 but for the factor of q and k.
    EXPECT_NEAR(BuildRopeTable(config, 1)[0], each["attention_factor"], 1e-6) << name;
  }
}

}  // namespace
}  // namespace tandem
