#include "grammar/json_schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <unordered_map>

namespace tandem {
namespace {

enum class Wants {
  kAnything,
  kSchema,
  kSchemaOrArray,
  kSchemas,
  kNamedSchemas,
  kCount,
  kNumber,
  kBound,
  kBoolean,
  kText,
  kTexts,
  kValues,
  kType
};

struct Keyword {
  unsigned types;  // 0: it is about all
  Wants wants;
};

const std::unordered_map<std::string_view, Keyword>& Keywords() {
  static const std::unordered_map<std::string_view, Keyword> keywords = {
      {"type", {0, Wants::kType}},
      {"enum", {0, Wants::kValues}},
      {"const", {0, Wants::kAnything}},
      {"$ref", {0, Wants::kText}},
      {"anyOf", {0, Wants::kSchemas}},
      {"oneOf", {0, Wants::kSchemas}},
      {"allOf", {0, Wants::kSchemas}},
      {"minLength", {kString, Wants::kCount}},
      {"maxLength", {kString, Wants::kCount}},
      {"pattern", {kString, Wants::kText}},
      {"format", {kString, Wants::kText}},
      {"minimum", {kNumber, Wants::kNumber}},
      {"maximum", {kNumber, Wants::kNumber}},
      {"exclusiveMinimum", {kNumber, Wants::kBound}},
      {"exclusiveMaximum", {kNumber, Wants::kBound}},
      {"multipleOf", {kNumber, Wants::kNumber}},
      {"items", {kArray, Wants::kSchemaOrArray}},
      {"prefixItems", {kArray, Wants::kSchemas}},
      {"additionalItems", {kArray, Wants::kSchema}},
      {"unevaluatedItems", {kArray, Wants::kSchema}},
      {"minItems", {kArray, Wants::kCount}},
      {"maxItems", {kArray, Wants::kCount}},
      {"uniqueItems", {kArray, Wants::kBoolean}},
      {"properties", {kObject, Wants::kNamedSchemas}},
      {"required", {kObject, Wants::kTexts}},
      {"additionalProperties", {kObject, Wants::kSchema}},
      {"unevaluatedProperties", {kObject, Wants::kSchema}},
      {"patternProperties", {kObject, Wants::kNamedSchemas}},
      {"propertyNames", {kObject, Wants::kSchema}},
      {"minProperties", {kObject, Wants::kCount}},
      {"maxProperties", {kObject, Wants::kCount}},
  };
  return keywords;
}

const std::set<std::string_view>& RefusedKeywords() {
  static const std::set<std::string_view> keywords = {"not",
                                                      "if",
                                                      "then",
                                                      "else",
                                                      "dependentRequired",
                                                      "dependentSchemas",
                                                      "dependencies",
                                                      "contains",
                                                      "minContains",
                                                      "maxContains",
                                                      "$dynamicRef",
                                                      "$recursiveRef",
                                                      "$dynamicAnchor",
                                                      "$recursiveAnchor",
                                                      "contentEncoding",
                                                      "contentMediaType",
                                                      "contentSchema",
                                                      "nullable"};
  return keywords;
}

unsigned TypeNamed(std::string_view name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kInteger;
  if (name == "number") return kNumber;
  if (name == "string") return kString;
  if (name == "array") return kArray;
  if (name == "object") return kObject;
  return 0;
}

bool IsSchema(const Json& value) {
  return value.is_object() || value.is_boolean();
}
bool IsCount(const Json& value) {
  return (value.is_number_integer() && value >= 0) ||
         (value.is_number_float() && value >= 0 && value.get<double>() == std::floor(value.get<double>()));
}

// What is wrong with the value of a keyword; empty if nothing is.
std::string_view Complaint(const Json& value, Wants wants) {
  const auto all = [&](auto is) { return std::all_of(value.begin(), value.end(), is); };
  const auto is_text = [](const Json& v) { return v.is_string(); };
  switch (wants) {
    case Wants::kAnything:
      return "";
    case Wants::kSchema:
      return IsSchema(value) ? "" : "must be a schema";
    case Wants::kSchemaOrArray:
      return IsSchema(value) || (value.is_array() && all(IsSchema))
                 ? ""
                 : "must be a schema or an array of schemas";
    case Wants::kSchemas:
      return value.is_array() && !value.empty() && all(IsSchema) ? ""
                                                                 : "must be an array of at least one schema";
    case Wants::kNamedSchemas:
      return value.is_object() && all(IsSchema) ? "" : "must be an object of schemas";
    case Wants::kCount:
      return IsCount(value) ? "" : "must be an integer from 0";
    case Wants::kNumber:
      return value.is_number() ? "" : "must be a number";
    case Wants::kBound:
      return value.is_number() || value.is_boolean() ? "" : "must be a number";
    case Wants::kBoolean:
      return value.is_boolean() ? "" : "must be true or false";
    case Wants::kText:
      return value.is_string() ? "" : "must be a string";
    case Wants::kTexts:
      return value.is_array() && all(is_text) ? "" : "must be an array of strings";
    case Wants::kValues:
      return value.is_array() && !value.empty() ? "" : "must be an array of at least one value";
    case Wants::kType: {
      const auto is_type = [&](const Json& v) {
        return v.is_string() && TypeNamed(v.get<std::string>()) != 0;
      };
      const bool fine = value.is_array() ? !value.empty() && all(is_type) : is_type(value);
      return fine ? "" : "must be a type of JSON or an array of them";
    }
  }
  return "";
}

}  // namespace

bool IsAnnotation(std::string_view keyword) {
  static const std::set<std::string_view> annotations = {
      "title",    "description", "default",       "example",      "examples", "$comment",    "$schema",
      "$id",      "id",          "$anchor",       "$vocabulary",  "$defs",    "definitions", "deprecated",
      "readOnly", "writeOnly",   "discriminator", "externalDocs", "xml"};
  return annotations.contains(keyword) || keyword.starts_with("x-");
}

unsigned TypesOfKeyword(std::string_view keyword) {
  const auto found = Keywords().find(keyword);
  return found == Keywords().end() ? 0 : found->second.types;
}

unsigned TypeOfValue(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNull;
    case Json::value_t::boolean:
      return kBoolean;
    case Json::value_t::string:
      return kString;
    case Json::value_t::array:
      return kArray;
    case Json::value_t::object:
      return kObject;
    case Json::value_t::number_float:
      return value.get<double>() == std::floor(value.get<double>()) ? kInteger : kFraction;
    default:
      return kInteger;
  }
}

Status CheckKeywords(const Json& schema, std::string_view at) {
  for (const auto& [keyword, value] : schema.items()) {
    if (IsAnnotation(keyword)) continue;
    if (RefusedKeywords().contains(keyword))
      return MakeError(ErrorCode::kUnsupported,
                       "{}: this keyword is not supported, because it would not be enforced",
                       JoinPointer(at, keyword));
    const auto found = Keywords().find(keyword);
    if (found == Keywords().end())
      return MakeError(ErrorCode::kUnsupported, "{}: this is no keyword of JSON schemas that is known here",
                       JoinPointer(at, keyword));
    if (const std::string_view complaint = Complaint(value, found->second.wants); !complaint.empty())
      return MakeError(ErrorCode::kInvalidArgument, "{}: {}", JoinPointer(at, keyword), complaint);
    if (keyword == "uniqueItems" && value == true &&
        !(schema.contains("maxItems") && schema["maxItems"] <= 1))
      return MakeError(ErrorCode::kUnsupported,
                       "{}: this keyword is not supported, because it would not be enforced",
                       JoinPointer(at, keyword));
  }
  // Below it references would begin elsewhere.
  if (at != "#" && schema.contains("$id") && schema["$id"].is_string())
    return MakeError(ErrorCode::kUnsupported, "{}: only the whole schema may have an `$id`",
                     JoinPointer(at, "$id"));
  return {};
}

unsigned TypesOf(const Json& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return kAllTypes;
  if (type->is_string()) return TypeNamed(type->get<std::string>());
  unsigned types = 0;
  for (const Json& name : *type) types |= TypeNamed(name.get<std::string>());
  return types;
}

}  // namespace tandem
