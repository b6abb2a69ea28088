// The methods of Python's str.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>

#include "jinja/access.h"
#include "jinja/arguments.h"
#include "jinja/characters.h"
#include "jinja/error.h"
#include "jinja/format.h"
#include "jinja/methods.h"
#include "jinja/split.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

// Parameters that Python takes by position only have names that no template can write.
//
// Numbers that a method computes of a text's characters come of what the text does.
Value Text(Runtime& runtime, const Value& self, SourcedText text) {
  return runtime.NewString(std::move(text), self.is_markup());
}

template <std::string (*Function)(std::string_view, Alignment*)>
Value Map(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("str method", arguments, {}, 0);
  return Text(runtime, self, self.sourced_text().Mapped(Function));
}

enum Side : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };

template <Side side>
Value Strip(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("strip", arguments, {"0"}, 0);
  std::string_view chars;
  const bool has_chars = bound.Has(0) && !bound.Get(0).is_none();
  if (has_chars) chars = bound.Text(0);
  std::string_view text = self.text();
  if (side & kLeft) text = StripLeft(text, has_chars ? &chars : nullptr);
  if (side & kRight) text = StripRight(text, has_chars ? &chars : nullptr);
  return Text(runtime, self, self.sourced_text().Part(text));
}

Value ToStringList(Runtime& runtime, const Value& self, const std::vector<std::string_view>& parts) {
  runtime.ChargeString(self.text().size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) {
    items.push_back(Value::String(self.sourced_text().Part(part), self.is_markup()));
  }
  return runtime.NewList(std::move(items));
}

template <bool from_right>
Value Split(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("split", arguments, {"sep", "maxsplit"}, 0);
  const int64_t max_splits = bound.Int(1, -1);
  runtime.ChargeSteps(static_cast<int64_t>(self.text().size() / 64));
  if (!bound.Has(0) || bound.Get(0).is_none()) {
    return ToStringList(runtime, self, SplitAtSpace(self.text(), max_splits, from_right));
  }
  if (bound.Text(0).empty()) throw TemplateError("empty separator");
  return ToStringList(runtime, self, SplitAt(self.text(), bound.Text(0), max_splits, from_right));
}

Value SplitLinesMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {"keepends"}, 0);
  return ToStringList(runtime, self, SplitLines(self.text(), bound.Bool(0, false)));
}

// The part of self that the optional start and end arguments name; nothing if start lies behind the end.
// offset: in code points.
std::optional<std::string_view> Window(Runtime& runtime, const Value& self, const BoundArguments& bound,
                                       size_t start_index, int64_t& offset) {
  offset = 0;
  const std::string_view text = self.text();
  if (!bound.Has(start_index)) return text;
  const int64_t length = runtime.Length(self);
  const auto position = [&](size_t index, int64_t missing) {
    if (!bound.Has(index) || bound.Get(index).is_none()) return missing;
    const int64_t value = bound.Int(index, 0);
    return value < 0 ? std::max<int64_t>(value + length, 0) : value;
  };
  const int64_t begin = position(start_index, 0);
  const int64_t end = std::min(position(start_index + 1, length), length);
  if (begin > end) return std::nullopt;
  offset = begin;
  size_t begin_byte = 0;
  for (int64_t i = 0; i < begin; ++i) NextCodePoint(text, begin_byte);
  size_t end_byte = begin_byte;
  for (int64_t i = begin; i < end; ++i) NextCodePoint(text, end_byte);
  return text.substr(begin_byte, end_byte - begin_byte);
}

template <bool at_start>
Value HasAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const char* const name = at_start ? "startswith" : "endswith";
  const BoundArguments bound(name, arguments, {"0", "1", "2"}, 1);
  int64_t offset = 0;
  const std::optional<std::string_view> window = Window(runtime, self, bound, 1, offset);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      throw TemplateError(
          fmt::format("{} first arg must be str or a tuple of str, not {}", name, TypeName(affix)));
    }
    if (!window) return false;
    return at_start ? window->starts_with(affix.text()) : window->ends_with(affix.text());
  };
  const Value affix = bound.Get(0);
  if (!affix.is(Kind::kTuple)) return Value::Bool(matches(affix));
  return Value::Bool(std::any_of(affix.items().begin(), affix.items().end(), matches));
}

template <bool from_right, bool must_exist>
Value Find(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("find", arguments, {"0", "1", "2"}, 1);
  int64_t offset = 0;
  const std::optional<std::string_view> window = Window(runtime, self, bound, 1, offset);
  runtime.ChargeSteps(static_cast<int64_t>(self.text().size() / 64));
  const std::string& needle = bound.Text(0);
  const size_t found = !window      ? std::string_view::npos
                       : from_right ? window->rfind(needle)
                                    : window->find(needle);
  if (found == std::string_view::npos) {
    if (must_exist) throw TemplateError("substring not found");
    return Value::Int(-1).From(self.source());
  }
  return Value::Int(offset + CodePointCount(window->substr(0, found))).From(self.source());
}

Value Count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"0", "1", "2"}, 1);
  int64_t offset = 0;
  const std::optional<std::string_view> window = Window(runtime, self, bound, 1, offset);
  const std::string& needle = bound.Text(0);
  if (!window) return Value::Int(0).From(self.source());
  if (needle.empty()) return Value::Int(CodePointCount(*window) + 1).From(self.source());
  runtime.ChargeSteps(static_cast<int64_t>(self.text().size() / 64));
  int64_t count = 0;
  for (size_t at = 0; (at = window->find(needle, at)) != std::string_view::npos; at += needle.size()) ++count;
  return Value::Int(count).From(self.source());
}

Value Replace(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"0", "1", "2"}, 2);
  return Text(runtime, self,
              ReplaceText(runtime, self.sourced_text(), bound.Text(0), bound.String(1).sourced_text(),
                          bound.Int(2, -1)));
}

Value Join(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"0"}, 1);
  if (bound.Get(0).is_undefined() && !bound.Get(0).heap()) throw TemplateError("can only join an iterable");
  SourcedText result;
  bool first = true;
  for (const Value& item : runtime.Iterate(bound.Get(0))) {
    if (!item.is_string()) {
      throw TemplateError(fmt::format("sequence item: expected str instance, {} found", TypeName(item)));
    }
    if (!first) result.Append(self.sourced_text());
    first = false;
    result.Append(item.sourced_text());
    if (result.size() > kMaxOutputBytes) runtime.ChargeString(result.size());
  }
  return Text(runtime, self, std::move(result));
}

Value RemovePrefix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("removeprefix", arguments, {"0"}, 1);
  const std::string_view text = self.text();
  const size_t size = text.starts_with(bound.Text(0)) ? bound.Text(0).size() : 0;
  return Text(runtime, self, self.sourced_text().Part(text.substr(size)));
}

Value RemoveSuffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("removesuffix", arguments, {"0"}, 1);
  const std::string_view text = self.text();
  const size_t size = text.ends_with(bound.Text(0)) ? bound.Text(0).size() : 0;
  return Text(runtime, self, self.sourced_text().Part(text.substr(0, text.size() - size)));
}

template <bool from_right>
Value Partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("partition", arguments, {"0"}, 1);
  const std::string_view text = self.text();
  const std::string& separator = bound.Text(0);
  if (separator.empty()) throw TemplateError("empty separator");
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  const auto part = [&](std::string_view piece) {
    return runtime.NewString(self.sourced_text().Part(piece));
  };
  if (at == std::string_view::npos) {
    const Value empty = Value::String(SourcedText());
    return from_right ? Value::Tuple({empty, empty, self}) : Value::Tuple({self, empty, empty});
  }
  return Value::Tuple({part(text.substr(0, at)), part(text.substr(at, separator.size())),
                       part(text.substr(at + separator.size()))});
}

template <Side side>
Value Pad(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("justify", arguments, {"0", "1"}, 1);
  const SourcedText fill =
      bound.Has(1) ? bound.String(1).sourced_text() : SourcedText(" ", Source::kTemplate);
  if (CodePointCount(fill.bytes()) != 1)
    throw TemplateError("The fill character must be exactly one character long");
  const int64_t width = bound.Int(0, 0);
  const int64_t missing = std::max<int64_t>(width - runtime.Length(self), 0);
  runtime.ChargeString(static_cast<size_t>(std::min<int64_t>(missing, kMaxOutputBytes + 1)) * fill.size());
  // str.center puts the odd blank on the left when the width is odd.
  int64_t left = side == kBoth ? missing / 2 + (missing & width & 1) : side == kRight ? missing : 0;
  SourcedText result;
  for (int64_t i = 0; i < left; ++i) result.Append(fill);
  result.Append(self.sourced_text());
  for (int64_t i = left; i < missing; ++i) result.Append(fill);
  return Text(runtime, self, std::move(result));
}

Value ZeroFill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("zfill", arguments, {"0"}, 1);
  const int64_t missing = std::max<int64_t>(bound.Int(0, 0) - runtime.Length(self), 0);
  runtime.ChargeString(static_cast<size_t>(std::min<int64_t>(missing, kMaxOutputBytes + 1)));
  const std::string_view text = self.text();
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  SourcedText result = self.sourced_text().Part(text.substr(0, has_sign ? 1 : 0));
  result.Append(std::string(static_cast<size_t>(missing), '0'), Source::kTemplate);
  result.Append(self.sourced_text(), text.substr(has_sign ? 1 : 0));
  return Text(runtime, self, std::move(result));
}

Value ExpandTabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("expandtabs", arguments, {"tabsize"}, 0);
  const int64_t tab_size = std::min<int64_t>(bound.Int(0, 8), kMaxOutputBytes + 1);
  const auto expand = [&](std::string_view text, Alignment* alignment) {
    std::string result;
    int64_t column = 0;
    for (size_t offset = 0; offset < text.size();) {
      const size_t begin = offset;
      const char32_t c = NextCodePoint(text, offset);
      if (c == '\t') {
        const int64_t blanks = tab_size > 0 ? tab_size - column % tab_size : 0;
        runtime.ChargeString(result.size() + static_cast<size_t>(blanks));
        result.append(static_cast<size_t>(blanks), ' ');
        if (alignment != nullptr) alignment->Change(1, static_cast<size_t>(blanks));
        column += blanks;
        continue;
      }
      result += text.substr(begin, offset - begin);
      if (alignment != nullptr) alignment->Keep(offset - begin);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    return result;
  };
  return Text(runtime, self, self.sourced_text().Mapped(expand));
}

template <bool (*Predicate)(char32_t)>
Value AllAre(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("str method", arguments, {}, 0);
  const std::u32string text = DecodeUtf8(self.text());
  return Value::Bool(!text.empty() && std::all_of(text.begin(), text.end(), Predicate));
}

// At least one cased character, and all cased characters of this case.
template <bool (*Predicate)(char32_t)>
Value AllCasedAre(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("str method", arguments, {}, 0);
  bool any = false;
  for (char32_t c : DecodeUtf8(self.text())) {
    if (!IsCased(c)) continue;
    if (!Predicate(c)) return Value::Bool(false);
    any = true;
  }
  return Value::Bool(any);
}

Value IsTitle(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("istitle", arguments, {}, 0);
  bool any = false;
  bool in_word = false;
  for (char32_t c : DecodeUtf8(self.text())) {
    if (!IsCased(c)) {
      in_word = false;
      continue;
    }
    if (IsLower(c) != in_word) return Value::Bool(false);
    in_word = any = true;
  }
  return Value::Bool(any);
}

Value IsAsciiMethod(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("isascii", arguments, {}, 0);
  return Value::Bool(IsAscii(self.text()));
}

Value IsPrintableMethod(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("isprintable", arguments, {}, 0);
  const std::u32string text = DecodeUtf8(self.text());
  return Value::Bool(std::all_of(text.begin(), text.end(), IsPrintable));
}

Value FormatMap(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("format_map", arguments, {"0"}, 1);
  if (!bound.Get(0).is(Kind::kDict)) throw TemplateError("format_map() argument must be a mapping");
  Arguments named;
  for (const auto& [key, value] : bound.Get(0).dict().entries) {
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  }
  return FormatBraces(runtime, self, named);
}

const std::unordered_map<std::string_view, Method>& Methods() {
  static const auto* const methods = new std::unordered_map<std::string_view, Method>{
      {"upper", Map<ToUpper>},
      {"lower", Map<ToLower>},
      {"casefold", Map<ToCasefolded>},
      {"title", Map<ToTitle>},
      {"capitalize", Map<ToCapitalized>},
      {"swapcase", Map<SwapCase>},
      {"strip", Strip<kBoth>},
      {"lstrip", Strip<kLeft>},
      {"rstrip", Strip<kRight>},
      {"split", Split<false>},
      {"rsplit", Split<true>},
      {"splitlines", SplitLinesMethod},
      {"startswith", HasAffix<true>},
      {"endswith", HasAffix<false>},
      {"find", Find<false, false>},
      {"rfind", Find<true, false>},
      {"index", Find<false, true>},
      {"rindex", Find<true, true>},
      {"count", Count},
      {"replace", Replace},
      {"join", Join},
      {"format", FormatBraces},
      {"format_map", FormatMap},
      {"removeprefix", RemovePrefix},
      {"removesuffix", RemoveSuffix},
      {"partition", Partition<false>},
      {"rpartition", Partition<true>},
      {"ljust", Pad<kLeft>},
      {"rjust", Pad<kRight>},
      {"center", Pad<kBoth>},
      {"zfill", ZeroFill},
      {"expandtabs", ExpandTabs},
      {"isalpha", AllAre<IsAlphabetic>},
      {"isdigit", AllAre<IsDigit>},
      {"isdecimal", AllAre<IsDecimal>},
      {"isnumeric", AllAre<IsNumeric>},
      {"isalnum", AllAre<IsAlphanumeric>},
      {"isspace", AllAre<IsSpace>},
      {"isupper", AllCasedAre<IsUpper>},
      {"islower", AllCasedAre<IsLower>},
      {"istitle", IsTitle},
      {"isascii", IsAsciiMethod},
      {"isprintable", IsPrintableMethod},
  };
  return *methods;
}

}  // namespace

Method FindStringMethod(std::string_view name) {
  const auto found = Methods().find(name);
  return found != Methods().end() ? found->second : nullptr;
}

}  // namespace tandem::jinja
