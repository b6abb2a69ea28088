#include "jinja/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "jinja/characters.h"
#include "jinja/error.h"
#include "jinja/operators.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

// Namespaces can contain themselves, so printing has its own bound.
constexpr int kMaxPrintDepth = 250;

void CheckPrint(const std::string& out, int depth) {
  if (depth > kMaxPrintDepth) throw TemplateError("value nested too deeply");
  if (out.size() > kMaxOutputBytes) {
    throw TemplateError(fmt::format("text longer than {} bytes", kMaxOutputBytes));
  }
}

void AppendStringRepr(std::string_view text, std::string& out) {
  const bool double_quoted =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char32_t quote = double_quoted ? '"' : '\'';
  EncodeUtf8(quote, out);
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, offset);
    if (c == quote || c == '\\') {
      out.push_back('\\');
      EncodeUtf8(c, out);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      EncodeUtf8(c, out);
    } else {
      AppendEscape(c, out);
    }
  }
  EncodeUtf8(quote, out);
}

void AppendRepr(const Value& value, int depth, std::string& out);

void AppendItems(const std::vector<Value>& items, int depth, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    AppendRepr(items[i], depth + 1, out);
  }
}

template <typename Entries>
void AppendEntries(const Entries& entries, int depth, std::string& out) {
  out.push_back('{');
  bool first = true;
  for (const auto& [key, item] : entries) {
    if (!first) out += ", ";
    first = false;
    if constexpr (std::is_same_v<std::decay_t<decltype(key)>, std::string>) {
      AppendStringRepr(key, out);
    } else {
      AppendRepr(key, depth + 1, out);
    }
    out += ": ";
    AppendRepr(item, depth + 1, out);
  }
  out.push_back('}');
}

void AppendView(const DictViewData& view, int depth, std::string& out) {
  out += view.view_kind == DictViewKind::kKeys     ? "dict_keys(["
         : view.view_kind == DictViewKind::kValues ? "dict_values(["
                                                   : "dict_items([";
  bool first = true;
  for (const auto& [key, item] : view.dict.dict().entries) {
    if (!first) out += ", ";
    first = false;
    if (view.view_kind == DictViewKind::kItems) out.push_back('(');
    if (view.view_kind != DictViewKind::kValues) AppendRepr(key, depth + 1, out);
    if (view.view_kind == DictViewKind::kItems) out += ", ";
    if (view.view_kind != DictViewKind::kKeys) AppendRepr(item, depth + 1, out);
    if (view.view_kind == DictViewKind::kItems) out.push_back(')');
  }
  out += "])";
}

void AppendRepr(const Value& value, int depth, std::string& out) {
  CheckPrint(out, depth);
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.boolean() ? "True" : "False";
      return;
    case Kind::kInt:
      fmt::format_to(std::back_inserter(out), "{}", value.integer());
      return;
    case Kind::kFloat:
      out += FormatFloat(value.real());
      return;
    case Kind::kString:
      if (value.is_markup()) out += "Markup(";
      AppendStringRepr(value.text(), out);
      if (value.is_markup()) out.push_back(')');
      return;
    case Kind::kList:
      out.push_back('[');
      AppendItems(value.items(), depth, out);
      out.push_back(']');
      return;
    case Kind::kTuple:
      out.push_back('(');
      AppendItems(value.items(), depth, out);
      out += value.items().size() == 1 ? ",)" : ")";
      return;
    case Kind::kDict:
      AppendEntries(value.dict().entries, depth, out);
      return;
    case Kind::kDictView:
      AppendView(value.view(), depth, out);
      return;
    case Kind::kRange: {
      const RangeData& range = value.range();
      fmt::format_to(std::back_inserter(out), "range({}, {}", range.start, range.stop);
      if (range.step != 1) fmt::format_to(std::back_inserter(out), ", {}", range.step);
      out.push_back(')');
      return;
    }
    case Kind::kNamespace:
      out += "<Namespace ";
      AppendEntries(value.ns().attributes.entries, depth, out);
      out.push_back('>');
      return;
    case Kind::kIterator:
      fmt::format_to(std::back_inserter(out), "<{} object>", value.iterator().type_name);
      return;
    case Kind::kFunction:
      out += value.function().name;
      return;
    case Kind::kObject:
      out += value.object().Describe();
      return;
  }
}

void AppendJsonString(std::string_view text, bool ensure_ascii, std::string& out) {
  constexpr std::u32string_view kEscaped = U"\"\\\n\r\t\f\b";
  constexpr std::string_view kShortForms = "\"\\nrtfb";
  out.push_back('"');
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, offset);
    if (const size_t short_form = kEscaped.find(c); short_form != std::u32string_view::npos) {
      out.push_back('\\');
      out.push_back(kShortForms[short_form]);
      continue;
    }
    const auto code = static_cast<uint32_t>(c);
    if (c < 0x20 || (ensure_ascii && c >= 0x7f && c < 0x10000)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
    } else if (ensure_ascii && c >= 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                     0xdc00 + ((code - 0x10000) & 0x3ff));
    } else {
      EncodeUtf8(c, out);
    }
  }
  out.push_back('"');
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return FormatFloat(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonOptions& options, std::string& out)
      : runtime_(runtime), options_(options), out_(out) {}

  void Write(const Value& value, int depth) {
    CheckPrint(out_, depth);
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return;
      case Kind::kBool:
        out_ += value.boolean() ? "true" : "false";
        return;
      case Kind::kInt:
        fmt::format_to(std::back_inserter(out_), "{}", value.integer());
        return;
      case Kind::kFloat:
        out_ += JsonFloat(value.real());
        return;
      case Kind::kString:
        AppendJsonString(value.text(), options_.ensure_ascii, out_);
        return;
      case Kind::kList:
      case Kind::kTuple:
        WriteArray(value.items(), depth);
        return;
      case Kind::kDict:
        WriteObject(value.dict(), depth);
        return;
      default:
        throw TemplateError(fmt::format("Object of type {} is not JSON serializable", TypeName(value)));
    }
  }

 private:
  void NewLine(int depth) {
    if (!options_.has_indent) return;
    out_.push_back('\n');
    for (int i = 0; i < depth; ++i) out_ += options_.indent;
  }

  void WriteArray(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += options_.item_separator;
      NewLine(depth + 1);
      Write(items[i], depth + 1);
    }
    NewLine(depth);
    out_.push_back(']');
  }

  void WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        AppendJsonString(key.text(), options_.ensure_ascii, out_);
        return;
      case Kind::kNone:
        out_ += "\"null\"";
        return;
      case Kind::kBool:
        out_ += key.boolean() ? "\"true\"" : "\"false\"";
        return;
      case Kind::kInt:
        fmt::format_to(std::back_inserter(out_), "\"{}\"", key.integer());
        return;
      case Kind::kFloat:
        fmt::format_to(std::back_inserter(out_), "\"{}\"", JsonFloat(key.real()));
        return;
      default:
        throw TemplateError(fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key)));
    }
  }

  void WriteObject(const DictData& dict, int depth) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (options_.sort_keys) {
      StableSort(entries,
                 [this](const auto* a, const auto* b) { return Less(runtime_, a->first, b->first); });
    }
    out_.push_back('{');
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out_ += options_.item_separator;
      first = false;
      NewLine(depth + 1);
      WriteKey(entry->first);
      out_ += options_.key_separator;
      Write(entry->second, depth + 1);
    }
    NewLine(depth);
    out_.push_back('}');
  }

  Runtime& runtime_;
  const JsonOptions& options_;
  std::string& out_;
};

}  // namespace

void AppendEscape(char32_t c, std::string& out) {
  const auto code = static_cast<uint32_t>(c);
  if (code < 0x100) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", code);
  } else if (code < 0x10000) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
  } else {
    fmt::format_to(std::back_inserter(out), "\\U{:08x}", code);
  }
}

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, end - buffer);
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t digits_of_exponent = e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + digits_of_exponent, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", text.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string result = text[0] == '-' ? "-" : "";
  if (exponent < 0) return result + "0." + std::string(-exponent - 1, '0') + digits;
  const auto point = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= point) return result + digits + std::string(point - digits.size(), '0') + ".0";
  return result + digits.substr(0, point) + "." + digits.substr(point);
}

std::string ToStr(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return "";
  return ToRepr(runtime, value);
}

std::string ToRepr(Runtime& runtime, const Value& value) {
  std::string out;
  AppendRepr(value, 0, out);
  runtime.ChargeString(out.size());
  return out;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string ToMarkup(Runtime& runtime, const Value& value) {
  return value.is_markup() ? value.text() : EscapeHtml(ToStr(runtime, value));
}

std::string ToJson(Runtime& runtime, const Value& value, const JsonOptions& options) {
  std::string out;
  JsonWriter(runtime, options, out).Write(value, 0);
  runtime.ChargeString(out.size());
  return out;
}

}  // namespace tandem::jinja
