#include "load/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json BaseConfig(const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"hidden_size", 256},
          {"intermediate_size", 512},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"vocab_size", 1000},
          {"rms_norm_eps", 1e-5},
          {"max_position_embeddings", 4096},
          {"hidden_act", "silu"},
          {"torch_dtype", "bfloat16"},
          {"use_cache", true}};
}

json With(json config, const std::string& key, json value) {
  config[key] = std::move(value);
  return config;
}

ModelConfig Parse(const json& config) {
  auto result = ParseHfConfig(config, "config.json");
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : ModelConfig();
}

void ExpectError(const json& config, ErrorCode code, const std::string& part) {
  const auto result = ParseHfConfig(config, "dir/config.json");
  ASSERT_FALSE(result.ok()) << config.dump();
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_THAT(result.error().message, HasSubstr(part));
  EXPECT_THAT(result.error().message, HasSubstr("dir/config.json"));
}

TEST(HfConfigTest, FamiliesAndDefaults) {
  const ModelConfig llama = Parse(BaseConfig("LlamaForCausalLM"));
  EXPECT_EQ(llama.family, ModelFamily::kLlama);
  EXPECT_EQ(llama.num_layers, 4);
  EXPECT_EQ(llama.head_dim, 32);
  EXPECT_EQ(llama.num_kv_heads, 2);
  EXPECT_EQ(llama.rope_theta, 10000.0);
  EXPECT_EQ(llama.sliding_window, 0);
  EXPECT_FALSE(llama.qkv_bias || llama.output_bias || llama.mlp_bias || llama.qk_norm);
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_EQ(llama.rope_scaling.type, RopeScaling::Type::kNone);

  json no_kv = BaseConfig("LlamaForCausalLM");
  no_kv.erase("num_key_value_heads");
  EXPECT_EQ(Parse(no_kv).num_kv_heads, 8);
  const ModelConfig biased = Parse(With(BaseConfig("LlamaForCausalLM"), "attention_bias", true));
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && !biased.mlp_bias);

  const ModelConfig qwen2 = Parse(BaseConfig("Qwen2ForCausalLM"));
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.qk_norm);
  const ModelConfig qwen3 = Parse(BaseConfig("Qwen3ForCausalLM"));
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(Parse(With(BaseConfig("Qwen3ForCausalLM"), "head_dim", 64)).head_dim, 64);
  EXPECT_EQ(Parse(With(BaseConfig("LlamaForCausalLM"), "head_dim", nullptr)).head_dim, 32);

  json by_type = With(BaseConfig("x"), "model_type", "qwen3");
  by_type.erase("architectures");
  EXPECT_EQ(Parse(by_type).family, ModelFamily::kQwen3);
}

TEST(HfConfigTest, SlidingWindow) {
  const json mistral = BaseConfig("MistralForCausalLM");
  EXPECT_EQ(Parse(mistral).sliding_window, 4096);
  EXPECT_EQ(Parse(With(mistral, "sliding_window", nullptr)).sliding_window, 0);
  EXPECT_EQ(Parse(With(mistral, "sliding_window", 17)).sliding_window, 17);

  json qwen = With(BaseConfig("Qwen2ForCausalLM"), "sliding_window", 1024);
  EXPECT_EQ(Parse(qwen).sliding_window, 0);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(Parse(With(qwen, "max_window_layers", 4)).sliding_window, 0);
  EXPECT_EQ(Parse(With(qwen, "max_window_layers", 0)).sliding_window, 1024);
  ExpectError(With(qwen, "max_window_layers", 2), ErrorCode::kUnsupported, "2 of 4 layers");
  const std::string full = "full_attention";
  const std::string sliding = "sliding_attention";
  EXPECT_EQ(Parse(With(qwen, "layer_types", {sliding, sliding, sliding, sliding})).sliding_window, 1024);
  ExpectError(With(qwen, "layer_types", {full, sliding, full, full}), ErrorCode::kUnsupported, "1 of 4");
  ExpectError(With(qwen, "layer_types", {full, full}), ErrorCode::kMalformedFile, "layer_types");
  ExpectError(With(qwen, "layer_types", {full, full, "linear_attention", full}), ErrorCode::kUnsupported,
              "linear_attention");
}

TEST(HfConfigTest, RopeInOldAndNewStyle) {
  const json base = BaseConfig("LlamaForCausalLM");
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 2048}};
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    json config = With(base, key, llama3);
    if (std::string(key) == "rope_parameters") {
      config[key]["rope_theta"] = 500000.0;
    } else {
      config["rope_theta"] = 500000;
    }
    const ModelConfig parsed = Parse(config);
    EXPECT_EQ(parsed.rope_theta, 500000.0);
    EXPECT_EQ(parsed.rope_scaling.type, RopeScaling::Type::kLlama3);
    EXPECT_EQ(parsed.rope_scaling.factor, 8.0);
    EXPECT_EQ(parsed.rope_scaling.low_freq_factor, 1.0);
    EXPECT_EQ(parsed.rope_scaling.high_freq_factor, 4.0);
    EXPECT_EQ(parsed.rope_scaling.original_max_position, 2048);
  }
  const ModelConfig linear = Parse(With(base, "rope_scaling", {{"type", "linear"}, {"factor", 2}}));
  EXPECT_EQ(linear.rope_scaling.type, RopeScaling::Type::kLinear);
  EXPECT_EQ(linear.rope_scaling.factor, 2.0);
  const ModelConfig plain =
      Parse(With(base, "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}));
  EXPECT_EQ(plain.rope_scaling.type, RopeScaling::Type::kNone);
  EXPECT_EQ(plain.rope_theta, 1e6);
  EXPECT_EQ(Parse(With(base, "rope_scaling", nullptr)).rope_scaling.type, RopeScaling::Type::kNone);

  ExpectError(With(base, "rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}),
              ErrorCode::kUnsupported, "'dynamic'");
  ExpectError(With(base, "rope_scaling", 3), ErrorCode::kMalformedFile, "rope_scaling");
  ExpectError(With(base, "rope_scaling", {{"type", "linear"}}), ErrorCode::kMalformedFile, "factor");
  ExpectError(With(base, "rope_scaling", {{"type", 5}}), ErrorCode::kMalformedFile, "type");
  ExpectError(With(base, "rope_parameters", {{"full_attention", json::object()}}), ErrorCode::kUnsupported,
              "by layer");
  ExpectError(With(base, "rope_parameters", {{"partial_rotary_factor", 0.5}}), ErrorCode::kUnsupported,
              "partial_rotary_factor");
  for (const char* field :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    for (const json& bad : {json("8"), json(-1), json(0), json(1e300), json::array(), json(true)}) {
      json config = With(base, "rope_scaling", llama3);
      config["rope_scaling"][field] = bad;
      ExpectError(config, ErrorCode::kMalformedFile, field);
    }
    json config = With(base, "rope_scaling", llama3);
    config["rope_scaling"].erase(field);
    ExpectError(config, ErrorCode::kMalformedFile, field);
  }
  json unordered = With(base, "rope_scaling", llama3);
  unordered["rope_scaling"]["low_freq_factor"] = 4.0;
  ExpectError(unordered, ErrorCode::kMalformedFile, "low_freq_factor");
}

TEST(HfConfigTest, EveryFieldOfTheWrongKind) {
  const json base = BaseConfig("LlamaForCausalLM");
  const std::vector<json> not_integers = {
      "256", -1, 0, 1.5, 1e30, true, json::array({256}), json::object(), int64_t{1} << 62, ~uint64_t{0}};
  for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "num_key_value_heads", "vocab_size", "max_position_embeddings", "head_dim"}) {
    for (const json& bad : not_integers)
      ExpectError(With(base, field, bad), ErrorCode::kMalformedFile, field);
  }
  for (const char* field :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    ExpectError(With(base, field, nullptr), ErrorCode::kMalformedFile, field);
    json missing = base;
    missing.erase(field);
    ExpectError(missing, ErrorCode::kMalformedFile, field);
  }
  for (const char* field : {"rms_norm_eps", "rope_theta"}) {
    for (const json& bad : {json("1"), json(-1.0), json(1e300), json(true), json::array(), json::object()})
      ExpectError(With(base, field, bad), ErrorCode::kMalformedFile, field);
  }
  for (const char* field : {"tie_word_embeddings", "attention_bias", "mlp_bias"}) {
    for (const json& bad : {json("true"), json(1), json::array(), json::object()})
      ExpectError(With(base, field, bad), ErrorCode::kMalformedFile, field);
  }
  for (const json& bad : {json(1), json::array(), json(true)})
    ExpectError(With(base, "hidden_act", bad), ErrorCode::kMalformedFile, "hidden_act");
  ExpectError(With(base, "hidden_act", "gelu"), ErrorCode::kUnsupported, "'gelu'");
  for (const json& bad : {json("LlamaForCausalLM"), json::array(), json::array({1}), json(5)})
    ExpectError(With(base, "architectures", bad), ErrorCode::kMalformedFile, "architectures");
  ExpectError(BaseConfig("GPT2LMHeadModel"), ErrorCode::kUnsupported, "GPT2LMHeadModel");
  for (const json& bad : {json("x"), json(0), json(-5), json(2.5)}) {
    ExpectError(With(BaseConfig("MistralForCausalLM"), "sliding_window", bad), ErrorCode::kMalformedFile,
                "sliding_window");
  }
}

TEST(HfConfigTest, MixturesOfExpertsAreNamed) {
  ExpectError(With(BaseConfig("Qwen3MoeForCausalLM"), "num_experts", 128), ErrorCode::kUnsupported,
              "models of the family Qwen3 MoE ('Qwen3MoeForCausalLM') are mixtures of 128 experts, which are "
              "not served");
  ExpectError(With(BaseConfig("GptOssForCausalLM"), "num_local_experts", 32), ErrorCode::kUnsupported,
              "gpt-oss");
  ExpectError(BaseConfig("MixtralForCausalLM"), ErrorCode::kUnsupported, "Mixtral");
  ExpectError(BaseConfig("DeepseekV3ForCausalLM"), ErrorCode::kUnsupported, "DeepSeek-V3");
  ExpectError(With(BaseConfig("SomeNewForCausalLM"), "n_routed_experts", 7), ErrorCode::kUnsupported,
              "'SomeNewForCausalLM' are mixtures of 7 experts");
}

TEST(HfConfigTest, FieldsThatContradictEachOther) {
  const json base = BaseConfig("LlamaForCausalLM");
  ExpectError(With(base, "num_key_value_heads", 3), ErrorCode::kMalformedFile, "divide");
  ExpectError(With(base, "num_key_value_heads", 16), ErrorCode::kMalformedFile, "num_key_value_heads");
  ExpectError(With(base, "head_dim", 33), ErrorCode::kMalformedFile, "odd");
  ExpectError(With(base, "hidden_size", 257), ErrorCode::kMalformedFile, "head_dim");
}

TEST(HfConfigTest, GenerationDefaults) {
  json config = With(With(BaseConfig("LlamaForCausalLM"), "bos_token_id", 1), "eos_token_id", 2);
  const auto parse = [&](const json& generation) {
    return ParseHfGenerationDefaults(config, "config.json", generation, "dir/generation_config.json");
  };
  const auto plain = parse(json::object());
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->bos_token_id, 1);
  EXPECT_THAT(plain->eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(plain->temperature.has_value() || plain->top_p.has_value() || plain->top_k.has_value());

  const auto full = parse({{"bos_token_id", 5},
                           {"eos_token_id", {7, 8}},
                           {"temperature", 0.6},
                           {"top_p", 0.9},
                           {"top_k", 50},
                           {"repetition_penalty", 1.1}});
  ASSERT_TRUE(full.ok()) << full.error().message;
  EXPECT_EQ(full->bos_token_id, 5);
  EXPECT_THAT(full->eos_token_ids, ElementsAre(7, 8));
  EXPECT_FLOAT_EQ(*full->temperature, 0.6F);
  EXPECT_FLOAT_EQ(*full->top_p, 0.9F);
  EXPECT_EQ(full->top_k, 50);
  EXPECT_FLOAT_EQ(*full->repetition_penalty, 1.1F);

  for (const char* field :
       {"bos_token_id", "eos_token_id", "temperature", "top_p", "top_k", "repetition_penalty"}) {
    for (const json& bad :
         {json("1"), json(-1), json(true), json(1e20), json::object(), json::array({"x"})}) {
      const auto result = parse({{field, bad}});
      ASSERT_FALSE(result.ok()) << field << " " << bad.dump();
      EXPECT_EQ(result.error().code, ErrorCode::kMalformedFile);
      EXPECT_THAT(result.error().message, HasSubstr(field));
      EXPECT_THAT(result.error().message, HasSubstr("dir/generation_config.json"));
    }
  }
  config.erase("eos_token_id");
  EXPECT_THAT(parse(json::object())->eos_token_ids, IsEmpty());
}

}  // namespace
}  // namespace tandem
