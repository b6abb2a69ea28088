// Tokenizer::FromTokenizerJson.
#include <nlohmann/json.hpp>
#include <utility>

#include "text/tokenizer/bpe_tokenizer.h"
#include "text/tokenizer/typed_json.h"

namespace tandem {
namespace {

using nlohmann::json;

Status ReadVocabulary(const json& model, TokenizerParts* parts) {
  TANDEM_ASSIGN_OR_RETURN(const json* vocabulary, GetField(model, "vocab"));
  if (!vocabulary->is_object())
    return MakeError(ErrorCode::kMalformedFile, "field \"vocab\" must be an object");
  parts->vocabulary.reserve(vocabulary->size());
  for (const auto& [token, id] : vocabulary->items()) {
    if (!id.is_number_integer())
      return MakeError(ErrorCode::kMalformedFile, "field \"vocab\": the id of \"{}\" is no integer", token);
    const auto value = id.get<int64_t>();
    if (value < 0 || value > INT32_MAX)
      return MakeError(ErrorCode::kMalformedFile, "field \"vocab\": \"{}\" has the id {}", token, value);
    parts->vocabulary.emplace_back(token, static_cast<int32_t>(value));
  }
  return {};
}

Status ReadMerges(const json& model, TokenizerParts* parts) {
  TANDEM_ASSIGN_OR_RETURN(const json* merges, GetArrayField(model, "merges"));
  parts->merges.reserve(merges->size());
  for (const json& merge : *merges) {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        return MakeError(ErrorCode::kMalformedFile, "field \"merges\": \"{}\" is not two tokens", text);
      parts->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      parts->merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      return MakeError(ErrorCode::kMalformedFile, "field \"merges\": entry {} is not two tokens",
                       parts->merges.size());
    }
  }
  return {};
}

Status ReadModel(const json& model, TokenizerParts* parts) {
  if (!model.is_object()) return MakeError(ErrorCode::kMalformedFile, "field \"model\" must be an object");
  // Old files name no type.
  if (model.contains("type")) {
    TANDEM_ASSIGN_OR_RETURN(const std::string_view type, GetStringField(model, "type"));
    if (type != "BPE") return MakeError(ErrorCode::kUnsupported, "model type \"{}\" is not supported", type);
  }
  TANDEM_RETURN_IF_ERROR(ReadVocabulary(model, parts));
  TANDEM_RETURN_IF_ERROR(ReadMerges(model, parts));
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.contains(field) || model[field].is_null()) continue;
    TANDEM_ASSIGN_OR_RETURN(const std::string_view affix, GetStringField(model, field));
    if (!affix.empty()) return MakeError(ErrorCode::kUnsupported, "field \"{}\" is not supported", field);
  }
  if (model.contains("dropout") && !model["dropout"].is_null() && model["dropout"] != 0.0)
    return MakeError(ErrorCode::kUnsupported, "field \"dropout\": random merges are not supported");
  TANDEM_ASSIGN_OR_RETURN(parts->options.byte_fallback, GetBoolField(model, "byte_fallback", false));
  TANDEM_ASSIGN_OR_RETURN(parts->options.fuse_unknown, GetBoolField(model, "fuse_unk", false));
  TANDEM_ASSIGN_OR_RETURN(parts->options.ignore_merges, GetBoolField(model, "ignore_merges", false));
  if (model.contains("unk_token") && !model["unk_token"].is_null()) {
    TANDEM_ASSIGN_OR_RETURN(const std::string_view unknown, GetStringField(model, "unk_token"));
    for (const auto& [token, id] : parts->vocabulary)
      if (token == unknown) parts->options.unknown_id = id;
    if (!parts->options.unknown_id)
      return MakeError(ErrorCode::kMalformedFile, "field \"unk_token\": \"{}\" is not in the vocabulary",
                       unknown);
  }
  return {};
}

Status ReadAddedTokens(const json& root, TokenizerParts* parts) {
  if (!root.contains("added_tokens") || root["added_tokens"].is_null()) return {};
  TANDEM_ASSIGN_OR_RETURN(const json* list, GetArrayField(root, "added_tokens"));
  for (const json& spec : *list) {
    TANDEM_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(spec));
    TANDEM_ASSIGN_OR_RETURN(token.id, GetIdField(spec, "id"));
    parts->added_tokens.push_back(std::move(token));
  }
  return {};
}

// A template around sequence A.
Status ReadTemplate(const json& spec, TokenizerParts* parts) {
  TANDEM_ASSIGN_OR_RETURN(const json* single, GetArrayField(spec, "single"));
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  bool behind_text = false;
  for (const json& item : *single) {
    if (item.is_object() && item.contains("Sequence")) {
      behind_text = true;
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(const json* special, GetField(item, "SpecialToken"));
    TANDEM_ASSIGN_OR_RETURN(const std::string_view name, GetStringField(*special, "id"));
    TANDEM_ASSIGN_OR_RETURN(const json* table, GetField(spec, "special_tokens"));
    TANDEM_ASSIGN_OR_RETURN(const json* entry, GetField(*table, name));
    TANDEM_ASSIGN_OR_RETURN(const json* ids, GetArrayField(*entry, "ids"));
    for (const json& id : *ids) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
        return MakeError(ErrorCode::kMalformedFile, "post-processor: \"{}\" has no valid ids", name);
      (behind_text ? suffix : prefix).push_back(id.get<int32_t>());
    }
  }
  if (!behind_text)
    return MakeError(ErrorCode::kMalformedFile, "post-processor: the template has no sequence");
  parts->prefix_ids.insert(parts->prefix_ids.begin(), prefix.begin(), prefix.end());
  parts->suffix_ids.insert(parts->suffix_ids.end(), suffix.begin(), suffix.end());
  return {};
}

Status ReadPostProcessor(const json& spec, int depth, TokenizerParts* parts) {
  if (spec.is_null()) return {};
  if (depth > kMaxNesting)
    return MakeError(ErrorCode::kMalformedFile, "post-processors are nested too deeply");
  TANDEM_ASSIGN_OR_RETURN(const std::string_view type, GetStringField(spec, "type"));
  // ByteLevel only changes offsets.
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return ReadTemplate(spec, parts);
  if (type == "Sequence") {
    TANDEM_ASSIGN_OR_RETURN(const json* list, GetArrayField(spec, "processors"));
    for (const json& step : *list) TANDEM_RETURN_IF_ERROR(ReadPostProcessor(step, depth + 1, parts));
    return {};
  }
  return MakeError(ErrorCode::kUnsupported, "post-processor \"{}\" is not supported", type);
}

Result<TokenizerParts> ReadTokenizerJson(const json& root, const TokenizerConfig& config) {
  if (!root.is_object()) return MakeError(ErrorCode::kMalformedFile, "not a JSON object");
  TokenizerParts parts;
  TANDEM_ASSIGN_OR_RETURN(const json* model, GetField(root, "model"));
  TANDEM_RETURN_IF_ERROR(ReadModel(*model, &parts));
  TANDEM_RETURN_IF_ERROR(ReadAddedTokens(root, &parts));
  const auto optional_field = [&root](const char* field) -> const json& {
    static const json null;
    const auto it = root.find(field);
    return it == root.end() ? null : *it;
  };
  TANDEM_ASSIGN_OR_RETURN(parts.normalizer, Normalizer::FromJson(optional_field("normalizer")));
  TANDEM_ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::FromJson(optional_field("pre_tokenizer")));
  TANDEM_ASSIGN_OR_RETURN(parts.decoder, DecoderSpec::FromJson(optional_field("decoder")));
  TANDEM_RETURN_IF_ERROR(ReadPostProcessor(optional_field("post_processor"), 0, &parts));
  ApplyTokenizerConfig(config, &parts);
  return parts;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromTokenizerJson(const std::string& tokenizer_json,
                                                                const std::string& tokenizer_config) {
  TANDEM_ASSIGN_OR_RETURN(const TokenizerConfig config, TokenizerConfig::Read(tokenizer_config));
  TANDEM_ASSIGN_OR_RETURN(const json root, ReadJsonFile(tokenizer_json));
  return BpeTokenizer::Create(tokenizer_json, ReadTokenizerJson(root, config));
}

}  // namespace tandem
