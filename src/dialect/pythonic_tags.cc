#include "dialect/pythonic_tags.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json TextFormat(std::string value) {
  return {{"type", "const_string"}, {"value", std::move(value)}};
}

Json SequenceFormat(std::vector<Json> elements) {
  if (elements.empty()) return TextFormat("");
  if (elements.size() == 1) return elements.front();
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

// The schema itself, if it is a reference the definition that it means.
Json Resolved(const Json& schema) {
  constexpr std::string_view kLocal = "#/";
  if (!schema.is_object() || !schema.contains("$ref") || !schema["$ref"].is_string()) return schema;
  const auto& reference = schema["$ref"].get_ref<const std::string&>();
  if (!reference.starts_with(kLocal)) return schema;
  try {
    const Json::json_pointer pointer(reference.substr(1));
    if (!schema.contains(pointer)) return schema;
    Json resolved = schema.at(pointer);
    if (!resolved.is_object()) return schema;
    for (const char* const definitions : {"$defs", "definitions"}) {
      if (schema.contains(definitions)) resolved[definitions] = schema[definitions];
    }
    return resolved;
  } catch (const Json::exception&) {  // not a pointer
    return schema;
  }
}

}  // namespace

Json PythonicArgumentsFormat(const Json& whole) {
  const Json schema = Resolved(whole);
  const Json properties = schema.value("properties", Json::object());
  const Json required_names = schema.value("required", Json::array());
  std::vector<Json> required;
  std::vector<Json> optional;
  for (const auto& [name, property] : properties.items()) {
    Json value = property;
    // References are from the root of a schema, which a value now is.
    for (const char* const definitions : {"$defs", "definitions"}) {
      if (value.is_object() && schema.contains(definitions)) value[definitions] = schema[definitions];
    }
    if (!value.is_object() && !value.is_boolean()) value = Json::object();
    if (value.is_boolean()) value = Json::object();
    Json argument = SequenceFormat(
        {TextFormat(name + "="), {{"type", "json_schema"}, {"json_schema", std::move(value)}}});
    const bool is_required = std::ranges::find(required_names, Json(name)) != required_names.end();
    (is_required ? required : optional).push_back(std::move(argument));
  }

  // Those that may be left out, each after a comma.
  const auto behind_comma = [](const Json& argument) {
    return Json{{"type", "optional"}, {"content", SequenceFormat({TextFormat(", "), argument})}};
  };
  std::vector<Json> elements;
  for (const Json& argument : required) {
    if (!elements.empty()) elements.push_back(TextFormat(", "));
    elements.push_back(argument);
  }
  if (!required.empty() || optional.empty()) {
    for (const Json& argument : optional) elements.push_back(behind_comma(argument));
    return SequenceFormat(std::move(elements));
  }
  // None is required: whichever is there first has no comma before it.
  std::vector<Json> beginnings;
  for (size_t first = 0; first < optional.size(); ++first) {
    std::vector<Json> arguments = {optional[first]};
    for (size_t i = first + 1; i < optional.size(); ++i) arguments.push_back(behind_comma(optional[i]));
    beginnings.push_back(SequenceFormat(std::move(arguments)));
  }
  Json any = beginnings.size() == 1 ? beginnings.front() : Json{{"type", "or"}, {"elements", beginnings}};
  return {{"type", "optional"}, {"content", std::move(any)}};
}

}  // namespace tandem
