#include "load/rope_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "load/checkpoint.h"
#include "load/files_testing.h"
#include "load/hf_config.h"

namespace tandem {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kYarnObject =
    R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192})";

ModelConfig ModelOf(int64_t max_position, const json& rope_scaling = nullptr) {
  const json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"hidden_size", 64},
                       {"intermediate_size", 64},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 2},
                       {"vocab_size", 100},
                       {"max_position_embeddings", max_position},
                       {"rope_scaling", rope_scaling}};
  const auto parsed = ParseHfConfig(config, "config.json");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? *parsed : ModelConfig();
}

RopeScaling Parsed(const std::string& text) {
  const auto scaling = ParseRopeScaling(text);
  EXPECT_TRUE(scaling.ok()) << scaling.error().message;
  return scaling.ok() ? *scaling : RopeScaling();
}

std::string ErrorOf(const std::string& text) {
  const auto scaling = ParseRopeScaling(text);
  EXPECT_FALSE(scaling.ok()) << text;
  if (scaling.ok()) return "";
  EXPECT_EQ(scaling.error().param, "rope-scaling");
  EXPECT_NE(scaling.error().code, ErrorCode::kMalformedFile) << "a flag is no file";
  return scaling.error().message;
}

TEST(RopeScalingTest, TheShortFormIsTheObject) {
  const RopeScaling yarn = Parsed("yarn:4");
  const RopeScaling object = Parsed(kYarnObject);
  EXPECT_EQ(yarn.type, RopeScaling::Type::kYarn);
  EXPECT_EQ(yarn.factor, 4.0);
  EXPECT_EQ(yarn.original_max_position, 0);
  EXPECT_EQ(object.original_max_position, 8192);
  EXPECT_EQ(yarn.attention_factor, object.attention_factor);
  EXPECT_NEAR(yarn.attention_factor, 1.1386294361, 1e-9);
  EXPECT_EQ(yarn.beta_fast, 32.0);
  EXPECT_EQ(Parsed("linear:2.5").factor, 2.5);
  EXPECT_EQ(Parsed("linear:2.5").type, RopeScaling::Type::kLinear);
  const RopeScaling llama = Parsed("llama3:8");
  EXPECT_EQ(llama.type, RopeScaling::Type::kLlama3);
  EXPECT_EQ(llama.original_max_position, 0);
  EXPECT_EQ(llama.high_freq_factor, 4.0);
}

TEST(RopeScalingTest, WrongOnesAreNamed) {
  EXPECT_THAT(ErrorOf("yarn"), HasSubstr("'yarn' is neither TYPE:FACTOR"));
  EXPECT_THAT(ErrorOf("yarn:"), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf(":4"), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf("yarn:4x"), HasSubstr("'yarn:4x'"));
  EXPECT_THAT(ErrorOf("yarn:0.5"), HasSubstr("'factor'"));
  EXPECT_THAT(ErrorOf("yarn:nan"), HasSubstr("'factor'"));
  EXPECT_THAT(ErrorOf("dynamic:2"),
              HasSubstr("'dynamic' is not supported; default, linear, llama3 and yarn"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("the settings: invalid JSON at byte"));
  EXPECT_THAT(ErrorOf(R"({"rope_type": "yarn"})"), HasSubstr("the settings: field 'factor' is missing"));
  EXPECT_THAT(ErrorOf(R"({"rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2})"),
              HasSubstr("beta_slow 2 is not below its beta_fast 1"));
}

TEST(RopeScalingTest, AnOverrideStretchesTheModelsContext) {
  ModelConfig config = ModelOf(8192);
  ASSERT_TRUE(OverrideRopeScaling(Parsed("yarn:4"), &config).ok());
  EXPECT_EQ(config.max_position, 32768);
  EXPECT_EQ(config.rope_scaling.original_max_position, 8192);

  config = ModelOf(8192);
  config.rope_freq_divisors = {1.0F};
  ASSERT_TRUE(OverrideRopeScaling(Parsed(kYarnObject), &config).ok());
  EXPECT_EQ(config.max_position, 32768);
  EXPECT_TRUE(config.rope_freq_divisors.empty());

  // What the model's own scaling stretches is what another one stretches.
  config =
      ModelOf(131072, {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 32768}});
  ASSERT_TRUE(OverrideRopeScaling(Parsed("linear:2"), &config).ok());
  EXPECT_EQ(config.max_position, 65536);
  EXPECT_EQ(config.rope_scaling.type, RopeScaling::Type::kLinear);
  ASSERT_TRUE(OverrideRopeScaling(Parsed(R"({"rope_type": "default"})"), &config).ok());
  EXPECT_EQ(config.max_position, 32768);
  EXPECT_EQ(config.rope_scaling.type, RopeScaling::Type::kNone);
}

TEST(RopeScalingTest, AnOverrideNeedsToKnowWhatItStretches) {
  ModelConfig linear = ModelOf(32768, {{"type", "linear"}, {"factor", 8}});
  ModelConfig divisors = ModelOf(131072);
  divisors.rope_freq_divisors.assign(16, 1.0F);
  for (ModelConfig* config : {&linear, &divisors}) {
    const int64_t before = config->max_position;
    const Status status = OverrideRopeScaling(Parsed("yarn:4"), config);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().param, "rope-scaling");
    EXPECT_THAT(status.error().message, HasSubstr("\"original_max_position_embeddings\" has to say"));
    EXPECT_EQ(config->max_position, before);
  }
  ModelConfig config = ModelOf(8192);
  const Status far = OverrideRopeScaling(Parsed("linear:1000000"), &config);
  ASSERT_FALSE(far.ok());
  EXPECT_THAT(far.error().message, HasSubstr("1000000 times 8192 tokens is more than"));
}

// Some files name the context before the scaling, some the one after it.
TEST(RopeScalingTest, AFilesYarnReachesItsFactorTimesTheOriginal) {
  const json yarn = json::parse(kYarnObject);
  EXPECT_EQ(ModelOf(8192, yarn).max_position, 32768);
  EXPECT_EQ(ModelOf(32768, yarn).max_position, 32768);
  EXPECT_EQ(ModelOf(40960, yarn).max_position, 40960);
  const ModelConfig unsaid = ModelOf(2048, {{"rope_type", "yarn"}, {"factor", 2}});
  EXPECT_EQ(unsaid.rope_scaling.original_max_position, 2048);
  EXPECT_EQ(unsaid.max_position, 4096);
}

TEST(RopeScalingTest, GgufMetadata) {
  const TemporaryFolder folder;
  const auto yarn = [](GgufWriter* writer) {
    writer->StringEntry("llama.rope.scaling.type", "yarn");
    writer->FloatEntry("llama.rope.scaling.factor", 4.0F);
    writer->IntEntry("llama.rope.scaling.original_context_length", 64);
    writer->FloatEntry("llama.rope.scaling.attn_factor", 0.5F);
  };
  const std::string path = folder.Write("yarn.gguf", TinyLlamaGguf(TinyLlamaTensors(), 4, yarn).bytes());
  const auto opened = Checkpoint::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const ModelConfig& config = (*opened)->config();
  EXPECT_EQ(config.rope_scaling.type, RopeScaling::Type::kYarn);
  EXPECT_EQ(config.rope_scaling.original_max_position, 64);
  EXPECT_NEAR(config.rope_scaling.attention_factor, 0.5 * (0.1 * std::log(4.0) + 1.0), 1e-12);
  EXPECT_EQ(config.max_position, 256);

  const auto stretched = Checkpoint::Open(path, Parsed("linear:3"));
  ASSERT_TRUE(stretched.ok()) << stretched.error().message;
  EXPECT_EQ((*stretched)->config().rope_scaling.type, RopeScaling::Type::kLinear);
  EXPECT_EQ((*stretched)->config().max_position, 192);

  const auto longrope = [](GgufWriter* writer) {
    writer->StringEntry("llama.rope.scaling.type", "longrope");
  };
  const auto refused =
      Checkpoint::Open(folder.Write("longrope.gguf", TinyLlamaGguf(TinyLlamaTensors(), 1, longrope).bytes()));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("RoPE scaling 'longrope' is not supported"));
}

}  // namespace
}  // namespace tandem
