#include "load/rope_scaling.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/param_error.h"
#include "load/config_limits.h"

namespace tandem {
namespace {

constexpr const char* kFlag = "rope-scaling";
constexpr const char* kOriginalKey = "original_max_position_embeddings";

Status ReadLlama3(const JsonFields& rope, RopeScaling* scaling) {
  scaling->type = RopeScaling::Type::kLlama3;
  TANDEM_ASSIGN_OR_RETURN(scaling->factor, rope.Float("factor", 1.0, kMaxRopeFactor));
  TANDEM_ASSIGN_OR_RETURN(scaling->low_freq_factor, rope.Float("low_freq_factor", 1e-6, kMaxRopeFactor));
  TANDEM_ASSIGN_OR_RETURN(scaling->high_freq_factor, rope.Float("high_freq_factor", 1e-6, kMaxRopeFactor));
  TANDEM_ASSIGN_OR_RETURN(scaling->original_max_position, rope.Int(kOriginalKey, 1, kMaxPositions));
  return {};
}

// What attention's scale becomes where the file does not say: the paper's 0.1 ln(factor) + 1, or the ratio of
// two such terms.
Result<double> ReadYarnAttention(const JsonFields& rope, double factor) {
  constexpr double kMost = 1e3;
  if (rope.Has("attention_factor")) return rope.Float("attention_factor", 1e-3, kMost);
  TANDEM_ASSIGN_OR_RETURN(const double mscale, rope.FloatOr("mscale", 0.0, 0.0, kMost));
  TANDEM_ASSIGN_OR_RETURN(const double mscale_all_dim, rope.FloatOr("mscale_all_dim", 0.0, 0.0, kMost));
  if (mscale == 0.0 || mscale_all_dim == 0.0) return DefaultYarnAttention(factor);
  return (0.1 * mscale * std::log(factor) + 1.0) / (0.1 * mscale_all_dim * std::log(factor) + 1.0);
}

Status ReadYarn(const JsonFields& rope, RopeScaling* scaling) {
  scaling->type = RopeScaling::Type::kYarn;
  TANDEM_ASSIGN_OR_RETURN(scaling->factor, rope.Float("factor", 1.0, kMaxRopeFactor));
  TANDEM_ASSIGN_OR_RETURN(scaling->original_max_position, rope.IntOr(kOriginalKey, 0, 1, kMaxPositions));
  TANDEM_ASSIGN_OR_RETURN(scaling->beta_fast, rope.FloatOr("beta_fast", 32.0, 1e-3, kMaxRopeFactor));
  TANDEM_ASSIGN_OR_RETURN(scaling->beta_slow, rope.FloatOr("beta_slow", 1.0, 1e-3, kMaxRopeFactor));
  TANDEM_ASSIGN_OR_RETURN(scaling->attention_factor, ReadYarnAttention(rope, scaling->factor));
  TANDEM_ASSIGN_OR_RETURN(scaling->truncate, rope.BoolOr("truncate", true));
  return {};
}

Status CheckOrder(const RopeScaling& scaling, const std::string& source) {
  if (scaling.type == RopeScaling::Type::kLlama3 && scaling.low_freq_factor >= scaling.high_freq_factor) {
    return MakeError(ErrorCode::kMalformedFile,
                     "{}: RoPE scaling's low_freq_factor {} is not below its high_freq_factor {}", source,
                     scaling.low_freq_factor, scaling.high_freq_factor);
  }
  if (scaling.type == RopeScaling::Type::kYarn && scaling.beta_slow >= scaling.beta_fast) {
    return MakeError(ErrorCode::kMalformedFile,
                     "{}: RoPE scaling's beta_slow {} is not below its beta_fast {}", source,
                     scaling.beta_slow, scaling.beta_fast);
  }
  return {};
}

// "yarn:4" as the object that it is short for.
Result<nlohmann::json> ShortForm(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string type(text.substr(0, colon));
  const std::string_view digits = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  double factor = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), factor);
  if (type.empty() || digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return MakeParamError(ErrorCode::kInvalidArgument, kFlag,
                          "'{}' is neither TYPE:FACTOR, such as yarn:4, nor a JSON object",
                          text.substr(0, 200));
  }
  nlohmann::json object = {{"rope_type", type}, {"factor", factor}};
  if (type == "llama3") {
    object["low_freq_factor"] = 1.0;
    object["high_freq_factor"] = 4.0;
    object[kOriginalKey] = 1;  // until the model says it
  }
  return object;
}

Error OfFlag(const Error& error) {
  const ErrorCode code = error.code == ErrorCode::kMalformedFile ? ErrorCode::kInvalidArgument : error.code;
  return Error{.code = code, .message = error.message, .param = kFlag};
}

}  // namespace

double DefaultYarnAttention(double factor) {
  return 0.1 * std::log(factor) + 1.0;
}

Result<RopeScaling> ReadRopeScaling(const JsonFields& rope) {
  const char* const type_key = rope.Has("rope_type") ? "rope_type" : "type";
  TANDEM_ASSIGN_OR_RETURN(const std::string type, rope.StringOr(type_key, "default"));
  RopeScaling scaling;
  if (type == "linear") {
    scaling.type = RopeScaling::Type::kLinear;
    TANDEM_ASSIGN_OR_RETURN(scaling.factor, rope.Float("factor", 1.0, kMaxRopeFactor));
    TANDEM_ASSIGN_OR_RETURN(scaling.original_max_position, rope.IntOr(kOriginalKey, 0, 1, kMaxPositions));
  } else if (type == "llama3") {
    TANDEM_RETURN_IF_ERROR(ReadLlama3(rope, &scaling));
  } else if (type == "yarn") {
    TANDEM_RETURN_IF_ERROR(ReadYarn(rope, &scaling));
  } else if (type != "default") {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: RoPE type '{}' is not supported; default, linear, llama3 and yarn are",
                     rope.where(), type.substr(0, 100));
  }
  TANDEM_ASSIGN_OR_RETURN(const double partial, rope.FloatOr("partial_rotary_factor", 1.0, 0.0, 1.0));
  if (partial != 1.0) {
    return MakeError(ErrorCode::kUnsupported, "{}: partial_rotary_factor {} is not supported, only 1",
                     rope.where(), partial);
  }
  TANDEM_RETURN_IF_ERROR(CheckOrder(scaling, rope.where()));
  return scaling;
}

void CompleteRopeScaling(ModelConfig* config) {
  RopeScaling& scaling = config->rope_scaling;
  if (scaling.type != RopeScaling::Type::kYarn) return;
  if (scaling.original_max_position == 0) scaling.original_max_position = config->max_position;
  const double reached = static_cast<double>(scaling.original_max_position) * scaling.factor;
  config->max_position = std::max(
      config->max_position, static_cast<int64_t>(std::min(reached, static_cast<double>(kMaxPositions))));
}

Result<RopeScaling> ParseRopeScaling(std::string_view text) {
  const std::string where = "the settings";
  const bool is_object = text.starts_with('{');
  const Result<nlohmann::json> object = is_object ? ParseJsonObject(text, where) : ShortForm(text);
  if (!object.ok()) return OfFlag(object.error());
  Result<RopeScaling> scaling = ReadRopeScaling(JsonFields(object.value(), where));
  if (!scaling.ok()) return OfFlag(scaling.error());
  if (!is_object) scaling->original_max_position = 0;
  return scaling;
}

Status OverrideRopeScaling(const RopeScaling& scaling, ModelConfig* config) {
  int64_t original = scaling.original_max_position;
  if (original == 0 && config->rope_freq_divisors.empty()) {
    const RopeScaling& own = config->rope_scaling;
    original = own.type == RopeScaling::Type::kNone ? config->max_position : own.original_max_position;
  }
  if (original == 0) {  // linear scaling, and GGUF's table of divisors, do not say what they stretch
    return MakeParamError(ErrorCode::kInvalidArgument, kFlag,
                          "the model's context of {} tokens is a stretched one: \"{}\" has to say for how "
                          "many tokens it was made",
                          config->max_position, kOriginalKey);
  }
  const double reached = static_cast<double>(original) * scaling.factor;
  if (reached > static_cast<double>(kMaxPositions)) {
    return MakeParamError(ErrorCode::kInvalidArgument, kFlag, "{} times {} tokens is more than {}",
                          scaling.factor, original, kMaxPositions);
  }
  config->max_position = static_cast<int64_t>(reached);
  config->rope_scaling = scaling;
  config->rope_scaling.original_max_position = original;
  config->rope_freq_divisors.clear();
  return {};
}

std::string DescribeRopeScaling(const RopeScaling& scaling) {
  const char* const name = scaling.type == RopeScaling::Type::kLinear   ? "linear"
                           : scaling.type == RopeScaling::Type::kLlama3 ? "llama3"
                           : scaling.type == RopeScaling::Type::kYarn   ? "yarn"
                                                                        : "none";
  return fmt::format("{} with factor {} of {} tokens", name, scaling.factor, scaling.original_max_position);
}

}  // namespace tandem
