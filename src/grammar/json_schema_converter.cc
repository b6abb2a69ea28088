#include "grammar/json_schema_converter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "grammar/json_schema_keywords.h"
#include "grammar/json_schema_merge.h"
#include "grammar/json_text_expressions.h"
#include "grammar/regex_parser.h"
#include "grammar/string_formats.h"

namespace tandem {
namespace {

constexpr int kMaxSchemaDepth = 64;
constexpr int kMaxSchemas = 20'000;

// Strings and arrays longer than this are not told apart from longer ones.
constexpr int64_t kMaxCount = 100'000;
// Each of them is compared with each other.
constexpr size_t kMaxExclusive = 200;
constexpr int kMaxMultiples = 2'000;
constexpr int kMaxMultipleOf = 200;

Error Unsupported(const std::string& at, std::string_view keyword, std::string_view what) {
  return MakeError(ErrorCode::kUnsupported, "{}: {}", JoinPointer(at, keyword), what);
}
Error NoValue(const std::string& at) {
  return MakeError(ErrorCode::kInvalidArgument, "{}: no value obeys this schema", at);
}

// A value of an `enum`, as it is written.
std::string ValueText(const Json& value, const JsonStyle& style) {
  if (value.is_string()) return QuotedJson(value.get<std::string>());
  if (!value.is_structured()) return value.dump();
  const std::string comma = style.any_whitespace ? "," : ", ";
  const std::string colon = style.any_whitespace ? ":" : ": ";
  std::string text;
  for (const auto& [key, item] : value.items()) {
    text += (text.empty() ? "" : comma) + (value.is_object() ? QuotedJson(key) + colon : "") +
            ValueText(item, style);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// Numbers that were read as something else than what was written.
bool HasInexactNumber(const Json& value) {
  if (value.is_number_float()) return std::fabs(value.get<double>()) >= 0x1p53;
  return value.is_structured() && std::any_of(value.begin(), value.end(), HasInexactNumber);
}

// lengths or numbers of items; absent: 0 and kUnbounded.
Result<LengthRange> Counts(const Json& schema, const char* min, const char* max, const std::string& at) {
  LengthRange counts{0, Expression::kUnbounded};
  const auto read = [&](const char* keyword, int64_t& count) -> Status {
    if (!schema.contains(keyword)) return {};
    const auto value = schema[keyword].get<double>();
    if (value > static_cast<double>(kMaxCount))
      return Unsupported(at, keyword, fmt::format("more than {} is not supported", kMaxCount));
    count = static_cast<int64_t>(value);
    return {};
  };
  TANDEM_RETURN_IF_ERROR(read(min, counts.min));
  TANDEM_RETURN_IF_ERROR(read(max, counts.max));
  if (counts.max != Expression::kUnbounded && counts.max < counts.min) return NoValue(at);
  return counts;
}

Result<Int128> IntegerBound(const Json& value, bool is_lower, bool is_exclusive, const std::string& at) {
  Int128 bound = 0;
  bool is_whole = true;
  if (value.is_number_unsigned()) {
    bound = static_cast<Int128>(value.get<uint64_t>());
  } else if (value.is_number_integer()) {
    bound = static_cast<Int128>(value.get<int64_t>());
  } else {
    const auto number = value.get<double>();
    if (std::fabs(number) >= 1e25)
      return MakeError(ErrorCode::kUnsupported, "{}: bounds from 10^25 are not supported", at);
    is_whole = number == std::floor(number);
    bound = static_cast<Int128>(is_lower ? std::ceil(number) : std::floor(number));
  }
  return bound + (is_whole && is_exclusive ? (is_lower ? 1 : -1) : 0);
}

template <typename T>
void Tighten(std::optional<T>& bound, T other, bool is_lower) {
  if (!bound || (is_lower ? other > *bound : other < *bound)) bound = other;
}

// Draft 4 says with true that `minimum` or `maximum` itself is out.
bool IsTrue(const Json& schema, const char* keyword) {
  return schema.contains(keyword) && schema[keyword] == true;
}

Result<IntegerBounds> IntegerBoundsOf(const Json& schema, const std::string& at) {
  IntegerBounds bounds;
  for (const bool is_lower : {true, false}) {
    std::optional<Int128>& bound = is_lower ? bounds.min : bounds.max;
    const char* inclusive = is_lower ? "minimum" : "maximum";
    const char* exclusive = is_lower ? "exclusiveMinimum" : "exclusiveMaximum";
    for (const char* keyword : {inclusive, exclusive}) {
      if (!schema.contains(keyword) || !schema[keyword].is_number()) continue;
      TANDEM_ASSIGN_OR_RETURN(
          const Int128 value,
          IntegerBound(schema[keyword], is_lower, keyword == exclusive || IsTrue(schema, exclusive),
                       JoinPointer(at, keyword)));
      Tighten(bound, value, is_lower);
    }
  }
  if (schema.contains("format") && schema["format"] == "int32") {
    Tighten<Int128>(bounds.min, std::numeric_limits<int32_t>::min(), true);
    Tighten<Int128>(bounds.max, std::numeric_limits<int32_t>::max(), false);
  }
  if (schema.contains("format") && schema["format"] == "int64") {
    Tighten<Int128>(bounds.min, std::numeric_limits<int64_t>::min(), true);
    Tighten<Int128>(bounds.max, std::numeric_limits<int64_t>::max(), false);
  }
  return bounds;
}

Result<std::optional<NumberBound>> NumberBoundOf(const Json& schema, bool is_lower, const std::string& at) {
  std::optional<NumberBound> bound;
  const char* inclusive = is_lower ? "minimum" : "maximum";
  const char* exclusive = is_lower ? "exclusiveMinimum" : "exclusiveMaximum";
  for (const char* keyword : {inclusive, exclusive}) {
    if (!schema.contains(keyword) || !schema[keyword].is_number()) continue;
    const NumberBound other{schema[keyword].get<double>(), keyword == exclusive || IsTrue(schema, exclusive)};
    if (std::fabs(other.value) >= 1e15)
      return Unsupported(at, keyword, "bounds of numbers from 10^15 are not supported");
    const bool is_tighter = !bound || (is_lower ? other.value > bound->value : other.value < bound->value) ||
                            (other.value == bound->value && other.is_exclusive);
    if (is_tighter) bound = other;
  }
  return bound;
}

bool IsNumberFormat(const Json& format) {
  return format == "int32" || format == "int64" || format == "float" || format == "double";
}

}  // namespace

JsonSchemaConverter::JsonSchemaConverter(const Json& root, const JsonStyle& style)
    : root_(root), style_(style), rules_(grammar_, style) {}

Result<std::string> JsonSchemaConverter::Convert() {
  TANDEM_ASSIGN_OR_RETURN(const Expression root, Reference("#", "#"));
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.back());
    pending_.pop_back();
    TANDEM_ASSIGN_OR_RETURN(Expression value, Value(*next.schema, next.at));
    grammar_.Define(next.rule, std::move(value));
  }
  if (!grammar_.Prune(root)) return NoValue("#");
  if (grammar_.compile_cost() > kMaxCompileCost)
    return MakeError(ErrorCode::kInvalidArgument,
                     "the JSON schema is too large: its lengths, numbers of items, values and properties "
                     "together would take "
                     "too long to compile (cost {}, and at most {} is allowed)",
                     grammar_.compile_cost(), kMaxCompileCost);
  return grammar_.Print(root);
}

// A rule for each schema that is referred to, so that it may refer to itself.
Result<Expression> JsonSchemaConverter::Reference(const std::string& reference, const std::string& at) {
  TANDEM_ASSIGN_OR_RETURN(const Json* target, ResolveReference(root_, reference, at));
  if (const auto known = references_.find(target); known != references_.end()) return known->second;
  const Expression rule = grammar_.Declare("reference");
  references_.emplace(target, rule);
  pending_.push_back({target, reference, rule});
  return rule;
}

Result<Expression> JsonSchemaConverter::Value(const Json& schema, const std::string& at) {
  if (schema == true) return rules_.any();
  if (schema == false) return Choice({});
  if (!schema.is_object())
    return MakeError(ErrorCode::kInvalidArgument, "{}: a schema is an object, true or false", at);
  if (++num_schemas_ > kMaxSchemas)
    return MakeError(ErrorCode::kInvalidArgument,
                     "the JSON schema is too large: with its references it has more than {} schemas",
                     kMaxSchemas);
  if (depth_ > kMaxSchemaDepth)
    return MakeError(ErrorCode::kInvalidArgument, "{}: schemas are nested deeper than {} levels", at,
                     kMaxSchemaDepth);
  ++depth_;
  TANDEM_ASSIGN_OR_RETURN(const Json flat, FlattenSchema(root_, schema, at));
  Result<Expression> value = flat.is_object() ? Flat(flat, at) : Value(flat, at);
  --depth_;
  return value;
}

Result<Expression> JsonSchemaConverter::Flat(const Json& schema, const std::string& at) {
  if (schema.contains("$ref")) return Reference(schema["$ref"].get<std::string>(), at);
  if (schema.contains("anyOf") && schema.contains("oneOf"))
    return Unsupported(at, "oneOf", "`oneOf` beside `anyOf` is not supported");
  for (const char* keyword : {"anyOf", "oneOf"})
    if (schema.contains(keyword)) return Alternatives(schema, keyword, at);
  if (schema.contains("enum") || schema.contains("const")) return Listed(schema, at);

  // Without `type` a value has the types that keywords are about.
  unsigned types = TypesOf(schema);
  unsigned meant = 0;
  for (const auto& [keyword, value] : schema.items())
    meant |= keyword == "format" && IsNumberFormat(value) ? static_cast<unsigned>(kNumber)
                                                          : TypesOfKeyword(keyword);
  if (!schema.contains("type")) {
    if (meant == 0) return rules_.any();
    types = meant;
  }
  std::vector<Expression> options;
  for (const unsigned type : {kObject, kArray, kString, kBoolean, kNull}) {
    if ((types & type) == 0) continue;
    TANDEM_ASSIGN_OR_RETURN(Expression option, Typed(type, schema, at));
    options.push_back(std::move(option));
  }
  if ((types & kNumber) != 0) {
    TANDEM_ASSIGN_OR_RETURN(Expression option, Number((types & kFraction) == 0, schema, at));
    options.push_back(std::move(option));
  }
  return Choice(std::move(options));
}

Result<Expression> JsonSchemaConverter::Typed(unsigned type, const Json& schema, const std::string& at) {
  switch (type) {
    case kObject:
      return Object(schema, at);
    case kArray:
      return Array(schema, at);
    case kString:
      return String(schema, at);
    case kBoolean:
      return Choice({Literal("true"), Literal("false")});
    default:
      return Literal("null");
  }
}

Result<Expression> JsonSchemaConverter::Alternatives(const Json& schema, const std::string& keyword,
                                                     const std::string& at) {
  const Json& branches = schema[keyword];
  const std::string list_at = JoinPointer(at, keyword);
  Json rest = schema;
  rest.erase(keyword);
  if (keyword == "oneOf") {
    if (branches.size() > kMaxExclusive)
      return MakeError(ErrorCode::kUnsupported, "{}: more than {} schemas are not supported", list_at,
                       kMaxExclusive);
    for (size_t i = 0; i < branches.size(); ++i)
      for (size_t j = i + 1; j < branches.size(); ++j)
        if (!AreDisjoint(root_, branches[i], branches[j]))
          return MakeError(ErrorCode::kUnsupported,
                           "{}: a value may obey both {} and {} of its schemas, and `oneOf` would not be "
                           "enforced; `anyOf` is "
                           "supported",
                           list_at, i, j);
  }
  std::vector<Expression> options;
  for (size_t i = 0; i < branches.size(); ++i) {
    const std::string branch_at = JoinPointer(list_at, i);
    Json branch = branches[i];
    if (!rest.empty()) {
      TANDEM_ASSIGN_OR_RETURN(branch, FlattenSchema(root_, branch, branch_at));
      TANDEM_ASSIGN_OR_RETURN(branch, MergeSchemas(root_, rest, branch, branch_at));
    }
    TANDEM_ASSIGN_OR_RETURN(Expression option, Value(branch, branch_at));
    options.push_back(std::move(option));
  }
  return Choice(std::move(options));
}

Result<Expression> JsonSchemaConverter::Listed(const Json& schema, const std::string& at) {
  const bool has_enum = schema.contains("enum");
  const Json values = has_enum ? schema["enum"] : Json::array({schema["const"]});
  Json rest = schema;
  rest.erase("enum");
  rest.erase("const");
  std::vector<Expression> options;
  for (const Json& value : values) {
    if (has_enum && schema.contains("const") && value != schema["const"]) continue;
    if (HasInexactNumber(value))
      return Unsupported(at, has_enum ? "enum" : "const",
                         "numbers from 2^53 with a fraction or an exponent are not supported");
    TANDEM_ASSIGN_OR_RETURN(const bool is_admitted, Admits(rest, value, at));
    if (is_admitted) options.push_back(Literal(ValueText(value, style_)));
  }
  if (options.empty()) return NoValue(at);
  return Choice(std::move(options));
}

Result<Expression> JsonSchemaConverter::String(const Json& schema, const std::string& at) {
  TANDEM_ASSIGN_OR_RETURN(const LengthRange counts, Counts(schema, "minLength", "maxLength", at));
  const bool has_format = schema.contains("format") && !IsNumberFormat(schema["format"]);
  if (!schema.contains("pattern") && !has_format) {
    if (counts.min == 0 && counts.max == Expression::kUnbounded) return rules_.string();
    return BoundedString(counts);
  }
  const char* keyword = has_format ? "format" : "pattern";
  if (has_format && schema.contains("pattern"))
    return Unsupported(at, "pattern", "`pattern` beside `format` is not supported");
  auto pattern = schema[keyword].get<std::string>();
  if (has_format) {
    const std::optional<std::string_view> regex = FormatRegex(pattern);
    if (!regex) return Unsupported(at, "format", fmt::format("the format '{}' is not supported", pattern));
    pattern = *regex;
  }
  Result<Expression> content = ParseRegex(pattern);
  if (!content.ok())
    return MakeError(content.error().code, "{}: {}", JoinPointer(at, keyword), content.error().message);
  const LengthRange lengths = Lengths(*content);
  const bool obeys =
      lengths.min >= counts.min && (counts.max == Expression::kUnbounded ||
                                    (lengths.max != Expression::kUnbounded && lengths.max <= counts.max));
  if (!obeys)
    return Unsupported(at, lengths.min < counts.min ? "minLength" : "maxLength",
                       fmt::format("this length beside a `{}` that allows others is not supported", keyword));
  return grammar_.Rule(keyword, Sequence({Literal("\""), EscapedForJson(*content), Literal("\"")}));
}

// Without escapes: one of two characters may be too many.
Expression JsonSchemaConverter::BoundedString(const LengthRange& lengths) {
  const auto [known, is_new] = bounded_strings_.try_emplace({lengths.min, lengths.max});
  if (is_new)
    known->second =
        grammar_.Rule("bounded_string",
                      Sequence({Literal("\""), Repeat(OneOf(PlainStringChars()), lengths.min, lengths.max),
                                Literal("\"")}));
  return known->second;
}

Result<Expression> JsonSchemaConverter::Number(bool is_integer, const Json& schema, const std::string& at) {
  if (schema.contains("format") && !IsNumberFormat(schema["format"]) && (TypesOf(schema) & kString) == 0)
    return Unsupported(at, "format",
                       fmt::format("the format {} of a number is not supported", schema["format"].dump()));
  double multiple = schema.contains("multipleOf") ? schema["multipleOf"].get<double>() : 1;
  if (schema.contains("multipleOf") && (multiple != std::floor(multiple) || multiple < 1))
    return Unsupported(at, "multipleOf", "only multiples of positive integers are supported");
  if (schema.contains("multipleOf")) is_integer = true;
  if (!is_integer &&
      !(schema.contains("format") && (schema["format"] == "int32" || schema["format"] == "int64"))) {
    TANDEM_ASSIGN_OR_RETURN(const std::optional<NumberBound> min, NumberBoundOf(schema, true, at));
    TANDEM_ASSIGN_OR_RETURN(const std::optional<NumberBound> max, NumberBoundOf(schema, false, at));
    return grammar_.Rule("number", NumbersBetween(min, max));
  }
  TANDEM_ASSIGN_OR_RETURN(const IntegerBounds bounds, IntegerBoundsOf(schema, at));
  if (multiple == 1) return grammar_.Rule("integer", IntegersBetween(bounds));
  if (multiple > 1e15)
    return Unsupported(at, "multipleOf", "multiples of numbers from 10^15 are not supported");
  const auto step = static_cast<Int128>(multiple);
  if (bounds.min && bounds.max) {
    std::vector<Expression> values;
    const Int128 first = *bounds.min / step - 1;
    for (Int128 i = first; i * step <= *bounds.max; ++i) {
      if (i * step < *bounds.min) continue;
      if (values.size() == kMaxMultiples) {
        return Unsupported(
            at, "multipleOf",
            fmt::format("more than {} multiples between the bounds are not supported", kMaxMultiples));
      }
      values.push_back(IntegersBetween({i * step, i * step}));
    }
    return grammar_.Rule("multiple", Choice(std::move(values)));
  }
  if (bounds.min || bounds.max)
    return Unsupported(at, "multipleOf", "`multipleOf` beside only one bound is not supported");
  if (step > kMaxMultipleOf)
    return Unsupported(
        at, "multipleOf",
        fmt::format("multiples of numbers beyond {} are not supported without bounds", kMaxMultipleOf));
  // Remainders of what is written so far.
  std::vector<Expression> remainders;
  const int n = static_cast<int>(step);
  remainders.reserve(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) remainders.push_back(grammar_.Declare("remainder"));
  std::vector<Expression> starts;
  for (int r = 0; r < n; ++r) {
    std::vector<Expression> next;
    if (r == 0) next.push_back(Literal(""));
    for (int digit = 0; digit < 10; ++digit)
      next.push_back(
          Sequence({Literal(std::to_string(digit)), remainders[static_cast<size_t>((r * 10 + digit) % n)]}));
    grammar_.Define(remainders[static_cast<size_t>(r)], Choice(std::move(next)));
  }
  for (int digit = 1; digit < 10; ++digit)
    starts.push_back(Sequence({Literal(std::to_string(digit)), remainders[static_cast<size_t>(digit % n)]}));
  return grammar_.Rule("multiple",
                       Choice({Literal("0"), Sequence({Optional(Literal("-")), Choice(std::move(starts))})}));
}

Result<Expression> JsonSchemaConverter::Array(const Json& schema, const std::string& at) {
  TANDEM_ASSIGN_OR_RETURN(const LengthRange counts, Counts(schema, "minItems", "maxItems", at));
  // Before draft 2020-12 the first items were an array in `items`, and `additionalItems` said what follows.
  const bool is_old = schema.contains("items") && schema["items"].is_array();
  const char* first_keyword = is_old ? "items" : "prefixItems";
  const char* rest_keyword = is_old ? "additionalItems" : "items";
  if (is_old && schema.contains("prefixItems"))
    return Unsupported(at, "items", "an array beside `prefixItems` is not supported");
  if (!schema.contains(rest_keyword) && schema.contains("unevaluatedItems"))
    rest_keyword = "unevaluatedItems";
  std::vector<Expression> first;
  if (schema.contains(first_keyword)) {
    const Json& items = schema[first_keyword];
    for (size_t i = 0; i < items.size(); ++i) {
      TANDEM_ASSIGN_OR_RETURN(Expression item,
                              Value(items[i], JoinPointer(JoinPointer(at, first_keyword), i)));
      first.push_back(grammar_.Rule("item", std::move(item)));
    }
  }
  Expression rest = rules_.any();
  bool has_rest = first.empty() || !style_.strict;
  if (schema.contains(rest_keyword)) {
    has_rest = schema[rest_keyword] != false;
    TANDEM_ASSIGN_OR_RETURN(rest, Value(schema[rest_keyword], JoinPointer(at, rest_keyword)));
    rest = grammar_.Rule("item", std::move(rest));
  }
  const auto num_first = static_cast<int64_t>(first.size());
  const auto left = [&](int64_t n) {
    return n == Expression::kUnbounded ? n : std::max<int64_t>(n - num_first, 0);
  };
  if (num_first == 0)
    return grammar_.Rule("array", rules_.Braced(has_rest         ? rules_.List(rest, counts.min, counts.max)
                                                : counts.min > 0 ? Choice({})
                                                                 : Literal(""),
                                                "[", "]"));
  // What follows item i - 1, from the last to the first.
  Expression tail = has_rest ? Repeat(Sequence({rules_.comma(), rest}), left(counts.min), left(counts.max))
                    : counts.min > num_first ? Choice({})
                                             : Literal("");
  for (int64_t i = num_first - 1; i >= 0; --i) {
    if (counts.max != Expression::kUnbounded && i >= counts.max) {
      tail = Literal("");
      continue;
    }
    tail = Sequence({i > 0 ? rules_.comma() : Literal(""), first[static_cast<size_t>(i)], std::move(tail)});
    if (i == 0) tail = Sequence({std::move(tail), rules_.space()});
    if (i >= counts.min) tail = Optional(std::move(tail));
    tail = grammar_.Rule("items", std::move(tail));
  }
  return grammar_.Rule("array", rules_.Braced(std::move(tail), "[", "]"));
}

}  // namespace tandem
