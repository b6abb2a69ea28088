#include "load/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Result<std::optional<QuantizationConfig>> ReadQuantization(const json& quantization) {
  const json config = {{"quantization_config", quantization}};
  return ReadQuantizationConfig(JsonFields(config, "dir/config.json"));
}

QuantizationConfig QuantizationOf(const json& quantization) {
  const auto result = ReadQuantization(quantization);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() && *result ? **result : QuantizationConfig();
}

void ExpectQuantizationError(const json& quantization, ErrorCode code, const std::string& part) {
  const auto result = ReadQuantization(quantization);
  ASSERT_FALSE(result.ok()) << quantization.dump();
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_THAT(result.error().message, HasSubstr(part));
  EXPECT_THAT(result.error().message, HasSubstr("dir/config.json: "));
}

json Compressed(const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

TEST(QuantizationConfigTest, NothingIsNothing) {
  const json config = json::object();
  EXPECT_FALSE(ReadQuantizationConfig(JsonFields(config, "c"))->has_value());
  EXPECT_FALSE(ReadQuantization(nullptr)->has_value());
}

TEST(QuantizationConfigTest, Awq) {
  const QuantizationConfig config = QuantizationOf({{"quant_method", "awq"},
                                                    {"bits", 4},
                                                    {"group_size", 64},
                                                    {"version", "GEMM"},
                                                    {"zero_point", true},
                                                    {"modules_to_not_convert", {"lm_head"}}});
  EXPECT_EQ(config.method, QuantizationMethod::kAwq);
  ASSERT_EQ(config.schemes.size(), 1U);
  EXPECT_EQ(config.schemes[0].group_size, 64);
  EXPECT_FALSE(config.schemes[0].symmetric);
  const QuantizationConfig older =
      QuantizationOf({{"quant_method", "awq"}, {"w_bit", 4}, {"q_group_size", -1}});
  EXPECT_EQ(older.schemes[0].group_size, 0);
  ExpectQuantizationError({{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}},
                          ErrorCode::kUnsupported, "version 'gemv' is not supported, only 'gemm'");
  ExpectQuantizationError({{"quant_method", "awq"}, {"bits", 4}, {"zero_point", false}},
                          ErrorCode::kUnsupported, "without zero points");
  ExpectQuantizationError({{"quant_method", "awq"}, {"bits", 8}}, ErrorCode::kUnsupported,
                          "weights of 8 bits");
}

TEST(QuantizationConfigTest, Gptq) {
  const json base = {{"quant_method", "gptq"}, {"bits", 8}, {"group_size", 32}};
  const QuantizationConfig config = QuantizationOf(base);
  EXPECT_EQ(config.schemes[0].bits, 8);
  EXPECT_TRUE(config.schemes[0].symmetric);
  EXPECT_TRUE(config.zeros_less_one);
  json v2 = base;
  v2.update({{"checkpoint_format", "gptq_v2"}, {"sym", false}});
  EXPECT_FALSE(QuantizationOf(v2).zeros_less_one);
  EXPECT_FALSE(QuantizationOf(v2).schemes[0].symmetric);
  v2["checkpoint_format"] = "marlin";
  ExpectQuantizationError(v2, ErrorCode::kUnsupported, "checkpoint_format 'marlin'");
  for (const int bits : {2, 3, 5, 16}) {
    ExpectQuantizationError(
        {{"quant_method", "gptq"}, {"bits", bits}}, ErrorCode::kUnsupported,
        "weights of " + std::to_string(bits) + " bits are not supported, only of 4 and 8");
  }
  for (const json& bits : {json("4"), json(0), json(4.5), json(nullptr)})
    ExpectQuantizationError({{"quant_method", "gptq"}, {"bits", bits}}, ErrorCode::kMalformedFile, "bits");
  for (const json& size : {json("x"), json(-2), json(1.5), json(int64_t{1} << 40)})
    ExpectQuantizationError({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", size}},
                            ErrorCode::kMalformedFile, "group_size");
}

TEST(QuantizationConfigTest, CompressedTensors) {
  const QuantizationConfig config = QuantizationOf(Compressed(
      {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}, {"symmetric", false}}));
  ASSERT_EQ(config.schemes.size(), 1U);
  EXPECT_EQ(config.schemes[0].group_size, 128);
  EXPECT_FALSE(config.schemes[0].symmetric);
  const QuantizationConfig channel =
      QuantizationOf(Compressed({{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}));
  EXPECT_EQ(channel.schemes[0].group_size, 0);
  EXPECT_EQ(channel.schemes[0].bits, 8);
  const QuantizationConfig blocks = QuantizationOf(Compressed(
      {{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {128, 64}}}));
  EXPECT_TRUE(blocks.schemes.empty());
  EXPECT_EQ(blocks.block_rows, 128);
  EXPECT_EQ(blocks.block_cols, 64);

  ExpectQuantizationError(Compressed({{"num_bits", 4}, {"type", "float"}}), ErrorCode::kUnsupported,
                          "floats of 4 bits");
  ExpectQuantizationError(Compressed({{"num_bits", 4}, {"strategy", "tensor_group"}}),
                          ErrorCode::kUnsupported, "strategy 'tensor_group'");
  ExpectQuantizationError(Compressed({{"num_bits", 4}, {"strategy", "group"}}), ErrorCode::kMalformedFile,
                          "group_size");
  ExpectQuantizationError(Compressed(nullptr), ErrorCode::kMalformedFile, "weights");
  json sparse = Compressed({{"num_bits", 4}});
  sparse["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
  ExpectQuantizationError(sparse, ErrorCode::kUnsupported, "'sparsity_config' is not supported");
  json other = Compressed({{"num_bits", 4}});
  other["format"] = "nvfp4-pack-quantized";
  ExpectQuantizationError(other, ErrorCode::kUnsupported, "format 'nvfp4-pack-quantized'");
}

TEST(QuantizationConfigTest, Fp8) {
  const QuantizationConfig config =
      QuantizationOf({{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}});
  EXPECT_EQ(config.block_rows, 128);
  EXPECT_EQ(QuantizationOf({{"quant_method", "fp8"}}).block_rows, 0);
  ExpectQuantizationError({{"quant_method", "fp8"}, {"fmt", "e5m2"}}, ErrorCode::kUnsupported, "fmt 'e5m2'");
  for (const json& block : {json(128), json{128}, json{0, 128}, json{128, "x"}})
    ExpectQuantizationError({{"quant_method", "fp8"}, {"weight_block_size", block}},
                            ErrorCode::kMalformedFile, "an array of two sizes");
}

TEST(QuantizationConfigTest, OthersAreNamed) {
  ExpectQuantizationError({{"quant_method", "bitsandbytes"}}, ErrorCode::kUnsupported,
                          "quant_method 'bitsandbytes' is not supported; awq, gptq, compressed-tensors, fp8");
  ExpectQuantizationError(json::object(), ErrorCode::kMalformedFile, "quant_method");
  ExpectQuantizationError("awq", ErrorCode::kMalformedFile, "'quantization_config' is a string");
}

}  // namespace
}  // namespace tandem
