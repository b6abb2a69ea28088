#include "text/tokenizer/tokenizer_config.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/tokenizer/typed_json.h"

namespace tandem {
namespace {

using nlohmann::json;

Status ReadSpecialToken(const json& config, const char* field, TokenizerConfig* result,
                        std::optional<std::string>* content) {
  const auto it = config.find(field);
  if (it == config.end() || it->is_null()) return {};
  if (!it->is_string() && !it->is_object())
    return MakeError(ErrorCode::kMalformedFile, "field \"{}\" must be a string or an object", field);
  TANDEM_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(*it));
  token.special = true;
  if (content != nullptr) *content = token.content;
  result->special_tokens.push_back(std::move(token));
  return {};
}

Status ReadOptionalBool(const json& config, const char* field, std::optional<bool>* value) {
  if (!config.contains(field) || config[field].is_null()) return {};
  TANDEM_ASSIGN_OR_RETURN(*value, GetBoolField(config, field, false));
  return {};
}

Status ReadAddedTokensDecoder(const json& config, TokenizerConfig* result) {
  const auto it = config.find("added_tokens_decoder");
  if (it == config.end() || it->is_null()) return {};
  if (!it->is_object())
    return MakeError(ErrorCode::kMalformedFile, "field \"added_tokens_decoder\" must be an object");
  for (const auto& [key, spec] : it->items()) {
    TANDEM_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(spec));
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0)
      return MakeError(ErrorCode::kMalformedFile, "field \"added_tokens_decoder\": \"{}\" is no token id",
                       key);
    result->added_tokens.push_back(std::move(token));
  }
  return {};
}

Status ReadFields(const json& config, TokenizerConfig* result) {
  if (!config.is_object()) return MakeError(ErrorCode::kMalformedFile, "not a JSON object");
  TANDEM_RETURN_IF_ERROR(ReadSpecialToken(config, "bos_token", result, &result->bos_token));
  TANDEM_RETURN_IF_ERROR(ReadSpecialToken(config, "eos_token", result, &result->eos_token));
  TANDEM_RETURN_IF_ERROR(ReadSpecialToken(config, "unk_token", result, &result->unk_token));
  for (const char* field : {"pad_token", "sep_token", "cls_token", "mask_token"})
    TANDEM_RETURN_IF_ERROR(ReadSpecialToken(config, field, result, nullptr));
  if (config.contains("additional_special_tokens") && !config["additional_special_tokens"].is_null()) {
    TANDEM_ASSIGN_OR_RETURN(const json* list, GetArrayField(config, "additional_special_tokens"));
    for (const json& spec : *list) {
      TANDEM_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(spec));
      token.special = true;
      result->special_tokens.push_back(std::move(token));
    }
  }
  TANDEM_RETURN_IF_ERROR(ReadOptionalBool(config, "add_bos_token", &result->add_bos_token));
  TANDEM_RETURN_IF_ERROR(ReadOptionalBool(config, "add_eos_token", &result->add_eos_token));
  TANDEM_RETURN_IF_ERROR(ReadOptionalBool(config, "add_prefix_space", &result->add_prefix_space));
  TANDEM_RETURN_IF_ERROR(ReadOptionalBool(config, "legacy", &result->legacy));
  return ReadAddedTokensDecoder(config, result);
}

}  // namespace

Result<AddedToken> ReadAddedToken(const json& spec) {
  AddedToken token;
  if (spec.is_string()) {
    token.content = spec.get<std::string>();
    return token;
  }
  TANDEM_ASSIGN_OR_RETURN(token.content, GetStringField(spec, "content"));
  TANDEM_ASSIGN_OR_RETURN(token.special, GetBoolField(spec, "special", false));
  TANDEM_ASSIGN_OR_RETURN(token.lstrip, GetBoolField(spec, "lstrip", false));
  TANDEM_ASSIGN_OR_RETURN(token.rstrip, GetBoolField(spec, "rstrip", false));
  TANDEM_ASSIGN_OR_RETURN(token.single_word, GetBoolField(spec, "single_word", false));
  TANDEM_ASSIGN_OR_RETURN(token.normalized, GetBoolField(spec, "normalized", !token.special));
  return token;
}

Result<TokenizerConfig> TokenizerConfig::Read(const std::string& path) {
  TokenizerConfig result;
  if (path.empty()) return result;
  TANDEM_ASSIGN_OR_RETURN(const json config, ReadJsonFile(path));
  const Status status = ReadFields(config, &result);
  if (!status.ok()) return MakeError(status.error().code, "{}: {}", path, status.error().message);
  return result;
}

}  // namespace tandem
