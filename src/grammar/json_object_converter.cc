#include <algorithm>
#include <utility>

#include "grammar/json_schema_converter.h"
#include "grammar/json_schema_keywords.h"
#include "grammar/json_text_expressions.h"
#include "grammar/regex_parser.h"

namespace tandem {
namespace {

Error RefusedObject(const std::string& at, std::string_view keyword, std::string_view what) {
  return MakeError(ErrorCode::kUnsupported, "{}: {}", JoinPointer(at, keyword), what);
}

int64_t PropertyCount(const Json& schema, const char* keyword, int64_t without) {
  // More than any object has.
  return schema.contains(keyword) ? static_cast<int64_t>(std::min(schema[keyword].get<double>(), 1e9))
                                  : without;
}

}  // namespace

// Those of `properties`, in their order, then what is only required.
Result<std::vector<JsonSchemaConverter::Property>> JsonSchemaConverter::NamedProperties(
    const Json& schema, const std::string& at, std::vector<std::string>& forbidden) {
  std::vector<std::string> required;
  if (schema.contains("required"))
    for (const Json& name : schema["required"]) required.push_back(name.get<std::string>());
  std::vector<Property> named;
  if (schema.contains("properties")) {
    const std::string list_at = JoinPointer(at, "properties");
    for (const auto& [name, property] : schema["properties"].items()) {
      if (property == false) {
        forbidden.push_back(name);
        continue;
      }
      TANDEM_ASSIGN_OR_RETURN(Expression value, Value(property, JoinPointer(list_at, name)));
      const bool is_required = std::ranges::find(required, name) != required.end();
      named.push_back({name, grammar_.Rule("property", std::move(value)), is_required});
    }
  }
  const char* others =
      schema.contains("additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  for (const std::string& name : required) {
    if (std::ranges::any_of(named, [&](const Property& p) { return p.name == name; })) continue;
    const bool is_forbidden = std::ranges::find(forbidden, name) != forbidden.end() ||
                              (schema.contains(others) && schema[others] == false);
    Expression value = is_forbidden ? Choice({}) : rules_.any();
    if (!is_forbidden && schema.contains(others)) {
      TANDEM_ASSIGN_OR_RETURN(value, Value(schema[others], JoinPointer(at, others)));
    }
    named.push_back({name, grammar_.Rule("property", std::move(value)), true});
  }
  return named;
}

Result<JsonSchemaConverter::OtherProperties> JsonSchemaConverter::Others(
    const Json& schema, const std::string& at, const std::vector<Property>& named,
    const std::vector<std::string>& forbidden) {
  const bool has_names = !named.empty() || !forbidden.empty();
  const char* keyword =
      schema.contains("additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  const bool is_said = schema.contains(keyword);
  OtherProperties others;
  if (schema.contains("patternProperties") && !schema["patternProperties"].empty()) {
    const std::string list_at = JoinPointer(at, "patternProperties");
    if (has_names || schema["patternProperties"].size() > 1 || schema.contains("propertyNames"))
      return RefusedObject(
          at, "patternProperties",
          "patterns of property names are only supported alone, one pattern for each object");
    const auto item = schema["patternProperties"].begin();
    if (item.value() == false)
      return RefusedObject(list_at, item.key(), "names that are forbidden are not supported");
    Result<Expression> key = ParseRegex(item.key());
    if (!key.ok())
      return MakeError(key.error().code, "{}: {}", JoinPointer(list_at, item.key()), key.error().message);
    TANDEM_ASSIGN_OR_RETURN(Expression value, Value(item.value(), JoinPointer(list_at, item.key())));
    others.are_allowed = true;
    others.key = grammar_.Rule("key", Sequence({Literal("\""), EscapedForJson(*key), Literal("\"")}));
    others.value = grammar_.Rule("property", std::move(value));
    return others;
  }
  others.are_allowed = is_said ? schema[keyword] != false : !(style_.strict && has_names);
  others.key = has_names ? rules_.StringExcept([&] {
    std::vector<std::string> names = forbidden;
    for (const Property& property : named) names.push_back(property.name);
    return names;
  }())
                         : rules_.string();
  if (schema.contains("propertyNames") && schema["propertyNames"] != true) {
    if (has_names)
      return RefusedObject(at, "propertyNames",
                           "`propertyNames` beside names of properties is not supported");
    const std::string names_at = JoinPointer(at, "propertyNames");
    Json names = schema["propertyNames"];
    if (names.is_object() && !names.contains("type") && !names.contains("$ref")) names["type"] = "string";
    TANDEM_RETURN_IF_ERROR(names.is_object() ? CheckKeywords(names, names_at) : Status());
    if (names == false || TypesOf(names) != kString || names.contains("$ref") || names.contains("anyOf") ||
        names.contains("oneOf") || names.contains("allOf"))
      return RefusedObject(at, "propertyNames",
                           "only schemas of type `string` without alternatives are supported here");
    TANDEM_ASSIGN_OR_RETURN(others.key, Value(names, names_at));
    others.key = grammar_.Rule("key", std::move(others.key));
  }
  others.value = rules_.any();
  if (is_said && others.are_allowed) {
    TANDEM_ASSIGN_OR_RETURN(others.value, Value(schema[keyword], JoinPointer(at, keyword)));
    others.value = grammar_.Rule("property", std::move(others.value));
  }
  return others;
}

Result<Expression> JsonSchemaConverter::Object(const Json& schema, const std::string& at) {
  std::vector<std::string> forbidden;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Property> named, NamedProperties(schema, at, forbidden));
  TANDEM_ASSIGN_OR_RETURN(const OtherProperties others, Others(schema, at, named, forbidden));
  const bool is_free = named.empty() && others.are_allowed;
  const int64_t num_required = std::ranges::count_if(named, [](const Property& p) { return p.is_required; });
  const auto num_named = static_cast<int64_t>(named.size());
  // The same name may come twice among others, and then counts once.
  const int64_t min = PropertyCount(schema, "minProperties", 0);
  if (min > std::max<int64_t>(num_required, 1))
    return RefusedObject(at, "minProperties",
                         "more than 1, and more than there are required properties, is not supported");
  const int64_t max = PropertyCount(schema, "maxProperties", Expression::kUnbounded);
  int64_t max_others = Expression::kUnbounded;
  if (max != Expression::kUnbounded && (others.are_allowed || max < num_named)) {
    if (num_required != num_named)
      return RefusedObject(at, "maxProperties",
                           "`maxProperties` beside properties that may be left out is not supported");
    if (max < num_named) return Choice({});
    max_others = max - num_named;
  }
  const bool may_be_empty = min <= num_required;
  if (is_free && !schema.contains("additionalProperties") && !schema.contains("unevaluatedProperties") &&
      !schema.contains("propertyNames") && !schema.contains("patternProperties") && forbidden.empty() &&
      may_be_empty && max_others == Expression::kUnbounded)
    return rules_.object();
  return grammar_.Rule("object", rules_.Braced(Members(named, others, max_others, may_be_empty), "{", "}"));
}

Expression JsonSchemaConverter::Members(const std::vector<Property>& named, const OtherProperties& others,
                                        int64_t max_others, bool may_be_empty) {
  const Expression other = Sequence({others.key, rules_.colon(), others.value});
  if (named.empty()) {
    if (!others.are_allowed) return may_be_empty ? Literal("") : Choice({});
    return rules_.List(other, may_be_empty ? 0 : 1, max_others);
  }
  const auto member = [&](const Property& property) {
    return Sequence({Literal(QuotedJson(property.name)), rules_.colon(), property.value});
  };
  // What follows the members before i; from the last to the first.
  std::vector<Expression> after(named.size() + 1);
  after.back() = others.are_allowed ? Repeat(Sequence({rules_.comma(), other}), 0, max_others) : Literal("");
  after.back() = grammar_.Rule("members", std::move(after.back()));
  for (size_t i = named.size(); i-- > 1;) {
    Expression with = Sequence({rules_.comma(), member(named[i]), after[i + 1]});
    after[i] = grammar_.Rule(
        "members", named[i].is_required ? std::move(with) : Choice({std::move(with), after[i + 1]}));
  }
  // Any of them may be the first, up to one that must be there.
  std::vector<Expression> starts;
  bool all_optional = true;
  for (size_t i = 0; i < named.size() && all_optional; ++i) {
    starts.push_back(Sequence({member(named[i]), after[i + 1]}));
    all_optional = !named[i].is_required;
  }
  if (all_optional && others.are_allowed && max_others != 0)
    starts.push_back(
        Sequence({other, Repeat(Sequence({rules_.comma(), other}), 0,
                                max_others == Expression::kUnbounded ? max_others : max_others - 1)}));
  Expression members = Sequence({Choice(std::move(starts)), rules_.space()});
  return all_optional && may_be_empty ? Optional(std::move(members)) : members;
}

}  // namespace tandem
