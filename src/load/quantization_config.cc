#include "load/quantization_config.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "load/config_limits.h"

namespace tandem {
namespace {

constexpr int64_t kMaxGroup = kMaxIntermediateSize;

template <typename... Args>
Error Unsupported(const JsonFields& fields, fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorCode::kUnsupported, "{}: {}", fields.where(),
                   fmt::format(format, std::forward<Args>(args)...));
}

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The first of these fields that is there.
const char* FirstOf(const JsonFields& fields, std::initializer_list<const char*> keys) {
  const auto* const found = std::ranges::find_if(keys, [&](const char* key) { return fields.Has(key); });
  return found == keys.end() ? *keys.begin() : *found;
}

Result<int> ReadBits(const JsonFields& fields, const char* key, bool may_be_8) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t bits, fields.Int(key, 1, 64));
  if (bits == 4 || (bits == 8 && may_be_8)) return static_cast<int>(bits);
  return Unsupported(fields, "weights of {} bits are not supported, only of {}", bits,
                     may_be_8 ? "4 and 8" : "4");
}

// -1 and 0 of a file mean whole rows.
Result<int64_t> ReadGroupSize(const JsonFields& fields, const char* key, int64_t fallback) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t size, fields.IntOr(key, fallback, -1, kMaxGroup));
  return std::max<int64_t>(size, 0);
}

// A value that may be absent, or has to be one of those.
Status Expect(const JsonFields& fields, const char* key, std::initializer_list<std::string_view> values) {
  if (!fields.Has(key)) return {};
  TANDEM_ASSIGN_OR_RETURN(const std::string value, fields.String(key));
  if (std::ranges::find(values, Lower(value)) != values.end()) return {};
  return Unsupported(fields, "{} '{}' is not supported, only '{}'", key, value.substr(0, 100),
                     *values.begin());
}

Status ReadAwq(const JsonFields& fields, QuantizationConfig* config) {
  TANDEM_RETURN_IF_ERROR(Expect(fields, "version", {"gemm"}));
  TANDEM_RETURN_IF_ERROR(Expect(fields, "backend", {"autoawq"}));
  IntegerScheme scheme{.symmetric = false};
  TANDEM_ASSIGN_OR_RETURN(scheme.bits, ReadBits(fields, FirstOf(fields, {"bits", "w_bit"}), false));
  TANDEM_ASSIGN_OR_RETURN(scheme.group_size,
                          ReadGroupSize(fields, FirstOf(fields, {"group_size", "q_group_size"}), 128));
  TANDEM_ASSIGN_OR_RETURN(const bool has_zeros, fields.BoolOr("zero_point", true));
  if (!has_zeros) return Unsupported(fields, "AWQ without zero points is not supported");
  config->schemes = {scheme};
  return {};
}

Status ReadGptq(const JsonFields& fields, QuantizationConfig* config) {
  const char* format_key = FirstOf(fields, {"checkpoint_format", "format"});
  TANDEM_RETURN_IF_ERROR(Expect(fields, format_key, {"gptq", "gptq_v2"}));
  TANDEM_RETURN_IF_ERROR(Expect(fields, "pack_dtype", {"int32"}));
  TANDEM_ASSIGN_OR_RETURN(const std::string format, fields.StringOr(format_key, "gptq"));
  config->zeros_less_one = Lower(format) == "gptq";
  IntegerScheme scheme;
  TANDEM_ASSIGN_OR_RETURN(scheme.bits, ReadBits(fields, "bits", true));
  TANDEM_ASSIGN_OR_RETURN(scheme.group_size, ReadGroupSize(fields, "group_size", 128));
  TANDEM_ASSIGN_OR_RETURN(scheme.symmetric, fields.BoolOr("sym", true));
  config->schemes = {scheme};
  return {};
}

// [rows, columns] of a block.
Status ReadBlock(const JsonFields& fields, const char* key, QuantizationConfig* config) {
  const nlohmann::json* block = fields.Find(key);
  const auto is_size = [](const nlohmann::json& size) {
    return size.is_number_integer() && size.get<int64_t>() >= 1 && size.get<int64_t>() <= kMaxGroup;
  };
  if (block == nullptr || !block->is_array() || block->size() != 2 || !is_size((*block)[0]) ||
      !is_size((*block)[1]))
    return fields.Wrong(key, "an array of two sizes");
  config->block_rows = (*block)[0].get<int64_t>();
  config->block_cols = (*block)[1].get<int64_t>();
  return {};
}

// The "weights" of a group of compressed-tensors.
Status ReadScheme(const JsonFields& weights, QuantizationConfig* config) {
  TANDEM_ASSIGN_OR_RETURN(const std::string type, weights.StringOr("type", "int"));
  TANDEM_ASSIGN_OR_RETURN(const std::string strategy, weights.StringOr("strategy", "channel"));
  if (type == "float") {
    TANDEM_ASSIGN_OR_RETURN(const int64_t bits, weights.Int("num_bits", 1, 64));
    if (bits != 8) return Unsupported(weights, "floats of {} bits are not supported, only of 8", bits);
    if (strategy == "block") return ReadBlock(weights, "block_structure", config);
    return Expect(weights, "strategy", {"tensor", "channel"});
  }
  if (type != "int")
    return Unsupported(weights, "weights of type '{}' are not supported", type.substr(0, 100));
  TANDEM_RETURN_IF_ERROR(Expect(weights, "strategy", {"group", "channel"}));
  IntegerScheme scheme;
  TANDEM_ASSIGN_OR_RETURN(scheme.bits, ReadBits(weights, "num_bits", true));
  TANDEM_ASSIGN_OR_RETURN(scheme.symmetric, weights.BoolOr("symmetric", true));
  if (strategy == "group") {
    TANDEM_ASSIGN_OR_RETURN(scheme.group_size, weights.Int("group_size", 1, kMaxGroup));
  }
  config->schemes.push_back(scheme);
  return {};
}

Status ReadCompressedTensors(const JsonFields& fields, QuantizationConfig* config) {
  TANDEM_RETURN_IF_ERROR(
      Expect(fields, "format", {"pack-quantized", "float-quantized", "naive-quantized", "mixed-precision"}));
  for (const char* key : {"sparsity_config", "transform_config"}) {
    const nlohmann::json* value = fields.Find(key);
    if (value != nullptr && !value->empty()) return Unsupported(fields, "'{}' is not supported", key);
  }
  TANDEM_ASSIGN_OR_RETURN(const JsonFields groups, fields.Object("config_groups"));
  for (const auto& [name, group] : fields.Find("config_groups")->items()) {
    TANDEM_ASSIGN_OR_RETURN(const JsonFields in_group, groups.Object(name.c_str()));
    TANDEM_ASSIGN_OR_RETURN(const JsonFields weights, in_group.Object("weights"));
    TANDEM_RETURN_IF_ERROR(ReadScheme(weights, config));
  }
  return {};
}

Status ReadFp8(const JsonFields& fields, QuantizationConfig* config) {
  TANDEM_RETURN_IF_ERROR(Expect(fields, "fmt", {"e4m3"}));
  return fields.Has("weight_block_size") ? ReadBlock(fields, "weight_block_size", config) : Status();
}

struct Method {
  std::string_view name;
  QuantizationMethod method;
  Status (*read)(const JsonFields& fields, QuantizationConfig* config);
};
constexpr Method kMethods[] = {
    {"awq", QuantizationMethod::kAwq, ReadAwq},
    {"gptq", QuantizationMethod::kGptq, ReadGptq},
    {"compressed-tensors", QuantizationMethod::kCompressedTensors, ReadCompressedTensors},
    {"fp8", QuantizationMethod::kFp8, ReadFp8},
    {"fbgemm_fp8", QuantizationMethod::kFp8, ReadFp8},
};

}  // namespace

std::string_view QuantizationMethodName(QuantizationMethod method) {
  switch (method) {
    case QuantizationMethod::kAwq:
      return "AWQ";
    case QuantizationMethod::kGptq:
      return "GPTQ";
    case QuantizationMethod::kCompressedTensors:
      return "compressed-tensors";
    case QuantizationMethod::kFp8:
      return "FP8";
  }
  return "?";
}

Result<std::optional<QuantizationConfig>> ReadQuantizationConfig(const JsonFields& config) {
  const char* key = FirstOf(config, {"quantization_config", "compression_config"});
  if (!config.Has(key)) return std::optional<QuantizationConfig>();
  TANDEM_ASSIGN_OR_RETURN(const JsonFields fields, config.Object(key));
  TANDEM_ASSIGN_OR_RETURN(const std::string name, fields.String("quant_method"));
  for (const Method& method : kMethods) {
    if (method.name != Lower(name)) continue;
    QuantizationConfig result{.method = method.method, .where = fields.where()};
    TANDEM_RETURN_IF_ERROR(method.read(fields, &result));
    return std::optional(std::move(result));
  }
  return Unsupported(
      fields, "quant_method '{}' is not supported; awq, gptq, compressed-tensors, fp8 and fbgemm_fp8 are",
      name.substr(0, 100));
}

}  // namespace tandem
