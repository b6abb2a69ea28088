// The filters of text and single numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "jinja/access.h"
#include "jinja/arguments.h"
#include "jinja/characters.h"
#include "jinja/error.h"
#include "jinja/filters.h"
#include "jinja/format.h"
#include "jinja/methods.h"
#include "jinja/number_parse.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/split.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

template <std::string (*Function)(std::string_view, Alignment*)>
Value MapText(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("filter", arguments, {"s"}, 1);
  return runtime.NewString(ToStr(runtime, bound.Get(0)).Mapped(Function), bound.Get(0).is_markup());
}

bool SeparatesTitleWords(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
}

std::string TitleWords(std::string_view text, Alignment* alignment) {
  std::string out;
  const auto append = [&](std::string (*map)(std::string_view, Alignment*), std::string_view part) {
    Alignment mapped;
    out += map(part, alignment != nullptr ? &mapped : nullptr);
    if (alignment != nullptr) alignment->Add(mapped);
  };
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    const bool separator = SeparatesTitleWords(NextCodePoint(text, end));
    const size_t first_end = end;
    for (size_t next = end; next < text.size(); end = next) {
      if (SeparatesTitleWords(NextCodePoint(text, next)) != separator) break;
    }
    append(ToUpper, text.substr(begin, first_end - begin));
    append(ToLower, text.substr(first_end, end - first_end));
    begin = end;
  }
  return out;
}

Value Trim(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("trim", arguments, {"value", "chars"}, 1);
  const SourcedText text = ToStr(runtime, bound.Get(0));
  std::string_view chars;
  const bool has_chars = bound.Has(1) && !bound.Get(1).is_none();
  if (has_chars) chars = bound.Text(1);
  const std::string_view* set = has_chars ? &chars : nullptr;
  return runtime.NewString(text.Part(StripLeft(StripRight(text.bytes(), set), set)),
                           bound.Get(0).is_markup());
}

Value Replace(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"s", "old", "new", "count"}, 3);
  const int64_t count = bound.Has(3) && !bound.Get(3).is_none() ? bound.Int(3, -1) : -1;
  return Value::String(ReplaceText(runtime, ToStr(runtime, bound.Get(0)),
                                   ToStr(runtime, bound.Get(1)).bytes(), ToStr(runtime, bound.Get(2)),
                                   count));
}

Value Indent(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("indent", arguments, {"s", "width", "first", "blank"}, 1);
  const Value source = bound.Get(0);
  if (!source.is_string()) {
    source.RequireDefined();
    throw TemplateError(fmt::format("indent: expected str, got {}", TypeName(source)));
  }
  SourcedText indention;
  if (bound.Has(1) && bound.Get(1).is_string()) {
    indention = bound.Get(1).sourced_text();
  } else {
    const int64_t width = std::clamp<int64_t>(bound.Int(1, 4), 0, kMaxOutputBytes + 1);
    runtime.ChargeString(static_cast<size_t>(width));
    indention = SourcedText(std::string(static_cast<size_t>(width), ' '), Source::kTemplate);
  }
  const bool blank = bound.Bool(3, false);
  const SourcedText& text = source.sourced_text();
  const char* const text_begin = text.bytes().data();
  std::vector<std::string_view> lines = SplitLines(text.bytes(), /*keep_ends=*/true);
  SourcedText result;
  if (bound.Bool(2, false)) result.Append(indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = SplitLines(lines[i])[0];
    if (i > 0 && (blank || !line.empty())) result.Append(indention);
    result.Append(text, line);
    // jinja2 appends a line feed before it splits: one break with a carriage return at the end.
    const bool last = i + 1 == lines.size();
    if (line.size() == lines[i].size() || (last && lines[i].ends_with('\r'))) continue;
    // The line end is of the break that it stands for.
    const auto line_end = static_cast<size_t>(line.data() - text_begin) + line.size();
    result.Append("\n", text.provenance().At(line_end));
    if (last && blank) result.Append(indention);
    if (result.size() > kMaxOutputBytes) break;
  }
  return runtime.NewString(std::move(result), source.is_markup());
}

Value Truncate(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("truncate", arguments, {"s", "length", "killwords", "end", "leeway"}, 1);
  const int64_t length = bound.Int(1, 255);
  const SourcedText end =
      bound.Has(3) ? bound.String(3).sourced_text() : SourcedText("...", Source::kTemplate);
  const int64_t leeway = bound.Has(4) && !bound.Get(4).is_none() ? bound.Int(4, 5) : 5;
  const int64_t end_length = CodePointCount(end.bytes());
  if (length < end_length || leeway < 0) throw TemplateError("truncate: length or leeway too small");
  const std::u32string text = DecodeUtf8(bound.Text(0));
  if (static_cast<int64_t>(text.size()) - leeway <= length) return bound.Get(0);
  std::u32string kept = text.substr(0, static_cast<size_t>(length - end_length));
  if (!bound.Bool(2, false)) {
    const size_t space = kept.rfind(U' ');
    if (space != std::u32string::npos) kept.resize(space);
  }
  const SourcedText& source = bound.String(0).sourced_text();
  SourcedText result = source.Part(std::string_view(source.bytes()).substr(0, EncodeUtf8(kept).size()));
  result.Append(end);
  return runtime.NewString(std::move(result));
}

Value WordCount(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("wordcount", arguments, {"s"}, 1);
  int64_t count = 0;
  bool in_word = false;
  const SourcedText text = ToStr(runtime, bound.Get(0));
  for (char32_t c : DecodeUtf8(text.bytes())) {
    const bool word = IsWordCharacter(c);
    count += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::Int(count).From(text.source());
}

Value Center(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("center", arguments, {"value", "width"}, 1);
  Arguments width;
  width.positional.push_back(Value::Int(bound.Int(1, 80)));
  return FindStringMethod("center")(runtime, Value::String(ToStr(runtime, bound.Get(0))), width);
}

Value Format(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("format() missing required argument: 'value'");
  const Value format = Value::String(ToStr(runtime, arguments.positional[0]));
  std::vector<Value> values(arguments.positional.begin() + 1, arguments.positional.end());
  if (arguments.named.empty()) return FormatPercent(runtime, format, Value::Tuple(std::move(values)));
  if (!values.empty()) {
    throw TemplateError("can't handle positional and keyword arguments at the same time");
  }
  auto dict = std::make_shared<DictData>();
  for (const auto& [name, value] : arguments.named) {
    dict->Set(Value::String(SourcedText(name, arguments.source_of_names)), value);
  }
  return FormatPercent(runtime, format, Value::Dict(std::move(dict)));
}

Value String(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("string", arguments, {"s"}, 1);
  if (bound.Get(0).is_string()) return bound.Get(0);
  return runtime.NewString(ToStr(runtime, bound.Get(0)));
}

Value Safe(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("safe", arguments, {"value"}, 1);
  return runtime.NewString(ToStr(runtime, bound.Get(0)), true);
}

Value Escape(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("escape", arguments, {"s"}, 1);
  return runtime.NewString(ToMarkup(runtime, bound.Get(0)), true);
}

Value ForceEscape(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("forceescape", arguments, {"value"}, 1);
  return runtime.NewString(EscapeHtml(ToStr(runtime, bound.Get(0))), true);
}

Value ToJsonFilter(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("tojson", arguments, {"x", "ensure_ascii", "indent", "separators", "sort_keys"},
                             1);
  JsonOptions options;
  options.ensure_ascii = bound.Bool(1, false);
  options.sort_keys = bound.Bool(4, false);
  const Value indent = bound.Get(2, Value::None());
  if (indent.is_string()) {
    options.indent = indent.sourced_text();
  } else if (!indent.is_none()) {
    const auto width = static_cast<size_t>(std::clamp<int64_t>(bound.Int(2, 0), 0, 1'000'000));
    options.indent = SourcedText(std::string(width, ' '), Source::kContent);
  }
  options.has_indent = !indent.is_none();
  if (options.has_indent) options.item_separator = SourcedText(",", Source::kContent);
  const Value separators = bound.Get(3, Value::None());
  if (!separators.is_none()) {
    if (!separators.is_list_or_tuple() || separators.items().size() != 2 ||
        !separators.items()[0].is_string() || !separators.items()[1].is_string()) {
      throw TemplateError("tojson: separators must be two strings");
    }
    options.item_separator = separators.items()[0].sourced_text();
    options.key_separator = separators.items()[1].sourced_text();
  }
  return Value::String(ToJson(runtime, bound.Get(0), options));
}

Value IntFromReal(double value, const Value& fallback) {
  if (std::isnan(value)) return fallback;
  if (std::isinf(value)) throw TemplateError("cannot convert float infinity to integer");
  if (!(value > -9.2e18 && value < 9.2e18)) throw TemplateError("integer out of the 64-bit range");
  return Value::Int(static_cast<int64_t>(value));
}

Value Int(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("int", arguments, {"value", "default", "base"}, 1);
  const Value value = bound.Get(0);
  Value fallback = bound.Get(1, Value::Int(0));
  value.RequireDefined();
  const Source source = value.source();
  if (value.is_integral()) return Value::Int(value.integer()).From(source);
  if (value.is(Kind::kFloat)) return IntFromReal(value.real(), fallback).From(source);
  if (!value.is_string()) return fallback;
  if (const std::optional<int64_t> parsed = ParseInteger(value.text(), bound.Int(2, 10))) {
    return Value::Int(*parsed).From(source);
  }
  const std::optional<double> real = ParseReal(value.text());
  return real && std::isfinite(*real) ? IntFromReal(*real, fallback).From(source) : fallback;
}

Value Float(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("float", arguments, {"value", "default"}, 1);
  const Value value = bound.Get(0);
  value.RequireDefined();
  if (value.is_number()) return Value::Float(value.AsDouble()).From(value.source());
  if (value.is_string()) {
    if (const std::optional<double> parsed = ParseReal(value.text())) {
      return Value::Float(*parsed).From(value.source());
    }
  }
  return bound.Get(1, Value::Float(0.0));
}

Value Abs(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("abs", arguments, {"0"}, 1);
  const Value value = bound.Get(0);
  if (value.is(Kind::kFloat)) return Value::Float(std::fabs(value.real())).From(value.source());
  if (!value.is_number())
    throw TemplateError(fmt::format("bad operand type for abs(): '{}'", TypeName(value)));
  return value.integer() < 0 ? Negate(value) : Plus(value);
}

Value RoundHalfEven(const Value& value, int64_t precision) {
  if (value.is_integral()) {
    if (precision >= 0) return Value::Int(value.integer());
    if (precision < -18) return Value::Int(0);
    int64_t unit = 1;
    for (int64_t i = 0; i < -precision; ++i) unit *= 10;
    int64_t quotient = FloorDivide(value.integer(), unit);
    const int64_t rest = value.integer() - quotient * unit;
    if (rest > unit / 2 || (rest == unit / 2 && quotient % 2 != 0)) ++quotient;
    int64_t rounded = 0;
    if (__builtin_mul_overflow(quotient, unit, &rounded))
      throw TemplateError("integer out of the 64-bit range");
    return Value::Int(rounded);
  }
  const double real = value.real();
  if (!std::isfinite(real) || precision > 300) return value;
  if (precision < -308) return Value::Float(std::copysign(0.0, real));
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return Value::Float(std::nearbyint(real / unit) * unit);
  }
  const std::optional<double> rounded = ParseReal(fmt::format("{:.{}f}", real, precision));
  return Value::Float(rounded.value_or(real));
}

Value Round(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("round", arguments, {"value", "precision", "method"}, 1);
  const Value value = bound.Get(0);
  const int64_t precision = bound.Int(1, 0);
  const std::string method = bound.Has(2) ? ToStr(runtime, bound.Get(2)).bytes() : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    throw TemplateError("method must be common, ceil or floor");
  }
  if (!value.is_number()) {
    value.RequireDefined();
    throw TemplateError(fmt::format("type {} doesn't define __round__ method", TypeName(value)));
  }
  if (method == "common") return RoundHalfEven(value, precision).From(value.source());
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.AsDouble() * unit;
  if (!std::isfinite(scaled) || unit == 0) throw TemplateError("cannot round this number");
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit)
      .From(value.source());
}

Value Default(Runtime& /*runtime*/, const Arguments& arguments) {
  const BoundArguments bound("default", arguments, {"value", "default_value", "boolean"}, 1);
  const Value value = bound.Get(0);
  const bool missing = value.is_undefined() || (bound.Bool(2, false) && !IsTruthy(value));
  return missing ? bound.Get(1, Value::String("")) : value;
}

Value Attr(Runtime& runtime, const Arguments& arguments) {
  const BoundArguments bound("attr", arguments, {"obj", "name"}, 2);
  const std::string& name = bound.Text(1);
  if (!bound.Get(0).is(Kind::kDict)) return GetAttribute(runtime, bound.Get(0), name);
  return FindMethod(bound.Get(0), name).value_or(MissingAttribute(bound.Get(0), name));
}

}  // namespace

const FilterTable& TextFilters() {
  static const auto* const filters = new FilterTable{
      {"upper", MapText<ToUpper>},
      {"lower", MapText<ToLower>},
      {"capitalize", MapText<ToCapitalized>},
      {"title", MapText<TitleWords>},
      {"trim", Trim},
      {"replace", Replace},
      {"indent", Indent},
      {"truncate", Truncate},
      {"wordcount", WordCount},
      {"center", Center},
      {"format", Format},
      {"string", String},
      {"safe", Safe},
      {"e", Escape},
      {"escape", Escape},
      {"forceescape", ForceEscape},
      {"tojson", ToJsonFilter},
      {"int", Int},
      {"float", Float},
      {"abs", Abs},
      {"round", Round},
      {"default", Default},
      {"d", Default},
      {"attr", Attr},
  };
  return *filters;
}

Filter FindFilter(std::string_view name) {
  for (const FilterTable* table : {&TextFilters(), &SequenceFilters(), &SelectionFilters()}) {
    if (const auto found = table->find(name); found != table->end()) return found->second;
  }
  return nullptr;
}

Value CallFilter(Runtime& runtime, std::string_view name, const Arguments& arguments) {
  const Filter filter = FindFilter(name);
  if (filter == nullptr) throw TemplateError(fmt::format("No filter named '{}'.", name));
  const CallDepthGuard guard(runtime);
  runtime.ChargeSteps(1);
  return filter(runtime, arguments);
}

}  // namespace tandem::jinja
