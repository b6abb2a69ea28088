#include "text/tokenizer/typed_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "load/json_fields.h"

namespace tandem {
namespace {

using nlohmann::json;

Error WrongType(std::string_view field, std::string_view expected, const json& found) {
  return MakeError(ErrorCode::kMalformedFile, "field \"{}\" must be {}, not {}", field, expected,
                   found.type_name());
}

}  // namespace

Result<json> ReadJsonFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(path, kMaxTokenizerFileBytes));
  try {
    return json::parse(bytes);
  } catch (const json::exception& e) {
    return MakeError(ErrorCode::kMalformedFile, "{}: {}", path, e.what());
  }
}

Result<const json*> GetField(const json& object, std::string_view field) {
  if (!object.is_object())
    return MakeError(ErrorCode::kMalformedFile, "expected an object with a field \"{}\", found {}", field,
                     object.type_name());
  const auto it = object.find(std::string(field));
  if (it == object.end()) return MakeError(ErrorCode::kMalformedFile, "field \"{}\" is missing", field);
  return &*it;
}

Result<std::string_view> GetStringField(const json& object, std::string_view field) {
  TANDEM_ASSIGN_OR_RETURN(const json* value, GetField(object, field));
  if (!value->is_string()) return WrongType(field, "a string", *value);
  return std::string_view(value->get_ref<const std::string&>());
}

Result<const json*> GetArrayField(const json& object, std::string_view field) {
  TANDEM_ASSIGN_OR_RETURN(const json* value, GetField(object, field));
  if (!value->is_array()) return WrongType(field, "an array", *value);
  return value;
}

Result<int32_t> GetIdField(const json& object, std::string_view field) {
  TANDEM_ASSIGN_OR_RETURN(const json* value, GetField(object, field));
  if (!value->is_number_integer()) return WrongType(field, "an integer", *value);
  const auto id = value->get<int64_t>();
  if (id < 0 || id > std::numeric_limits<int32_t>::max())
    return MakeError(ErrorCode::kMalformedFile, "field \"{}\": {} is no token id", field, id);
  return static_cast<int32_t>(id);
}

Result<bool> GetBoolField(const json& object, std::string_view field, bool fallback) {
  if (!object.is_object()) return WrongType(field, "in an object", object);
  const auto it = object.find(std::string(field));
  if (it == object.end() || it->is_null()) return fallback;
  if (!it->is_boolean()) return WrongType(field, "true or false", *it);
  return it->get<bool>();
}

Result<SplitRegex> GetPatternField(const json& object, std::string_view field) {
  TANDEM_ASSIGN_OR_RETURN(const json* pattern, GetField(object, field));
  if (pattern->is_object() && pattern->contains("Regex")) {
    TANDEM_ASSIGN_OR_RETURN(const std::string_view regex, GetStringField(*pattern, "Regex"));
    return SplitRegex::Compile(regex);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string_view literal, GetStringField(*pattern, "String"));
  if (literal.empty()) return MakeError(ErrorCode::kMalformedFile, "field \"{}\" is an empty string", field);
  return SplitRegex::Literal(literal);
}

}  // namespace tandem
