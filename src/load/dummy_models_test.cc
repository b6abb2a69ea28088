#include "load/dummy_models.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "load/config_limits.h"
#include "load/required_tensors.h"

namespace tandem {
namespace {

int64_t NumParameters(const ModelConfig& config) {
  int64_t sum = 0;
  for (const RequiredTensor& tensor : RequiredTensors(config)) sum += tensor.rows * tensor.cols;
  return sum;
}

TEST(DummyModels, HaveThePublishedNumberOfParameters) {
  const std::map<std::string, int64_t> published = {
      {"llama-2-7b", 6'738'415'616},      {"llama-2-13b", 13'015'864'320}, {"llama-3.1-8b", 8'030'261'248},
      {"llama-3.1-70b", 70'553'706'496},  {"llama-3.2-1b", 1'235'814'400}, {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-14b", 14'770'033'664},    {"qwen3-32b", 32'762'123'264},   {"mistral-24b", 23'572'403'200},
      {"mistral-7b-v0.1", 7'241'732'096}, {"smollm2-135m", 134'515'008}};
  for (const auto& [name, num_parameters] : published) {
    const auto config = DummyModelConfig(name);
    ASSERT_TRUE(config.ok()) << name;
    EXPECT_EQ(NumParameters(*config), num_parameters) << name;
  }
  EXPECT_EQ(DummyModelNames().size(), published.size() + 2);  // and "tiny" and half of one
}

TEST(DummyModels, HalfOfAModelIsOneOfTwoTensorParallelShards) {
  const auto whole = DummyModelConfig("llama-3.1-70b");
  const auto half = DummyModelConfig("llama-3.1-70b-half");
  ASSERT_TRUE(whole.ok() && half.ok());
  EXPECT_EQ(half->num_layers, whole->num_layers);
  EXPECT_EQ(half->hidden_size, whole->hidden_size);
  EXPECT_EQ(half->head_dim, whole->head_dim);
  EXPECT_EQ(2 * half->num_heads, whole->num_heads);
  EXPECT_EQ(2 * half->num_kv_heads, whole->num_kv_heads);
  EXPECT_EQ(2 * half->intermediate_size, whole->intermediate_size);
  EXPECT_EQ(2 * half->vocab_size, whole->vocab_size);
  EXPECT_EQ(half->max_position, whole->max_position);
  EXPECT_EQ(half->rope_scaling.factor, whole->rope_scaling.factor);
  // Both shards have all norms: two a layer and the last one.
  const int64_t norms = (2 * whole->num_layers + 1) * whole->hidden_size;
  EXPECT_EQ(2 * NumParameters(*half), NumParameters(*whole) + norms);
}

TEST(DummyModels, AreConfigurationsThatTheLoaderWouldTake) {
  for (const std::string& name : DummyModelNames()) {
    const auto config = DummyModelConfig(name);
    ASSERT_TRUE(config.ok()) << name;
    const Status valid = CheckModelConfig(*config, name);
    EXPECT_TRUE(valid.ok()) << valid.error().message;
    EXPECT_GE(config->vocab_size, 256) << name << ": bytes are its text";
  }
}

TEST(DummyModels, CarryWhatTheNumberOfParametersDoesNotShow) {
  const auto llama = DummyModelConfig("llama-3.1-8b");
  EXPECT_EQ(llama->head_dim, 128);
  EXPECT_EQ(llama->max_position, 131072);
  EXPECT_EQ(llama->rope_theta, 500000.0);
  EXPECT_EQ(llama->rope_scaling.type, RopeScaling::Type::kLlama3);
  EXPECT_EQ(llama->rope_scaling.factor, 8.0);
  EXPECT_EQ(DummyModelConfig("llama-3.2-1b")->rope_scaling.factor, 32.0);
  EXPECT_EQ(DummyModelConfig("mistral-7b-v0.1")->sliding_window, 4096);
  EXPECT_EQ(DummyModelConfig("qwen2.5-7b")->rms_norm_eps, 1e-6);
  EXPECT_EQ(DummyModelConfig("qwen2.5-14b")->rms_norm_eps, 1e-5);
  EXPECT_EQ(DummyModelConfig("qwen3-32b")->head_dim, 128);
  EXPECT_EQ(DummyModelConfig("qwen3-32b")->max_position, 40960);
  EXPECT_EQ(DummyModelConfig("mistral-24b")->sliding_window, 0);
  EXPECT_EQ(DummyModelConfig("mistral-24b")->rope_theta, 1e8);
  EXPECT_EQ(DummyModelConfig("tiny")->head_dim, 64);
}

TEST(DummyModels, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  const auto config = DummyModelConfig("llama-4");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(config.error().param, "dummy");
  for (const std::string& name : DummyModelNames()) {
    EXPECT_NE(config.error().message.find(name), std::string::npos) << name;
  }
}

TEST(DummyModels, NamesMaySayHowWeightsAreQuantized) {
  const auto name = ParseDummyName("llama-3.1-8b:int4");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->shape, "llama-3.1-8b");
  EXPECT_EQ(name->quantization, Quantization::kInt4);
  EXPECT_EQ(ParseDummyName("tiny:fp8")->quantization, Quantization::kFp8);
  EXPECT_EQ(ParseDummyName("tiny")->quantization, Quantization::kAuto);
  EXPECT_EQ(DummyModelConfig("tiny:int8")->hidden_size, DummyModelConfig("tiny")->hidden_size);
  EXPECT_EQ(ParseDummyName("tiny:int3").error().message,
            "'tiny:int3': what is behind the colon is none of int4, int8, fp8");
  EXPECT_EQ(DummyModelConfig("huge:int4").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tandem
