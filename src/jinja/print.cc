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

// Quotes, brackets and separators that printing puts around values.
constexpr Source kGenerated = Source::kContent;

void CheckPrint(const SourcedText& out, int depth) {
  if (depth > kMaxPrintDepth) throw TemplateError("value nested too deeply");
  if (out.size() > kMaxOutputBytes) {
    throw TemplateError(fmt::format("text longer than {} bytes", kMaxOutputBytes));
  }
}

void AppendStringRepr(const SourcedText& text, SourcedText& out) {
  const bool double_quoted =
      text.bytes().find('\'') != std::string::npos && text.bytes().find('"') == std::string::npos;
  const char32_t quote = double_quoted ? U'"' : U'\'';
  const std::string_view quotes = double_quoted ? "\"" : "'";
  out.Append(quotes, kGenerated);
  out.Append(text.Mapped([quote](std::string_view bytes, Alignment* alignment) {
    return EscapeCharacters(bytes, alignment, [quote](char32_t c, std::string& escaped) {
      if (c == quote || c == '\\') {
        escaped.push_back('\\');
        EncodeUtf8(c, escaped);
      } else if (c == '\n') {
        escaped += "\\n";
      } else if (c == '\r') {
        escaped += "\\r";
      } else if (c == '\t') {
        escaped += "\\t";
      } else if (IsPrintable(c)) {
        EncodeUtf8(c, escaped);
      } else {
        AppendEscape(c, escaped);
      }
    });
  }));
  out.Append(quotes, kGenerated);
}

void AppendRepr(const Value& value, int depth, SourcedText& out);

void AppendItems(const std::vector<Value>& items, int depth, SourcedText& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(", ", kGenerated);
    AppendRepr(items[i], depth + 1, out);
  }
}

template <typename Entries>
void AppendEntries(const Entries& entries, int depth, SourcedText& out) {
  out.Append("{", kGenerated);
  bool first = true;
  for (const auto& [key, item] : entries) {
    if (!first) out.Append(", ", kGenerated);
    first = false;
    if constexpr (std::is_same_v<std::decay_t<decltype(key)>, std::string>) {
      AppendStringRepr(SourcedText(key, kGenerated), out);
    } else {
      AppendRepr(key, depth + 1, out);
    }
    out.Append(": ", kGenerated);
    AppendRepr(item, depth + 1, out);
  }
  out.Append("}", kGenerated);
}

void AppendView(const DictViewData& view, int depth, SourcedText& out) {
  out.Append(view.view_kind == DictViewKind::kKeys     ? "dict_keys(["
             : view.view_kind == DictViewKind::kValues ? "dict_values(["
                                                       : "dict_items([",
             kGenerated);
  bool first = true;
  for (const auto& [key, item] : view.dict.dict().entries) {
    if (!first) out.Append(", ", kGenerated);
    first = false;
    if (view.view_kind == DictViewKind::kItems) out.Append("(", kGenerated);
    if (view.view_kind != DictViewKind::kValues) AppendRepr(key, depth + 1, out);
    if (view.view_kind == DictViewKind::kItems) out.Append(", ", kGenerated);
    if (view.view_kind != DictViewKind::kKeys) AppendRepr(item, depth + 1, out);
    if (view.view_kind == DictViewKind::kItems) out.Append(")", kGenerated);
  }
  out.Append("])", kGenerated);
}

void AppendRepr(const Value& value, int depth, SourcedText& out) {
  CheckPrint(out, depth);
  switch (value.kind()) {
    case Kind::kUndefined:
      out.Append("Undefined", kGenerated);
      return;
    case Kind::kNone:
      out.Append("None", value.source());
      return;
    case Kind::kBool:
      out.Append(value.boolean() ? "True" : "False", value.source());
      return;
    case Kind::kInt:
      out.Append(fmt::to_string(value.integer()), value.source());
      return;
    case Kind::kFloat:
      out.Append(FormatFloat(value.real()), value.source());
      return;
    case Kind::kString:
      if (value.is_markup()) out.Append("Markup(", kGenerated);
      AppendStringRepr(value.sourced_text(), out);
      if (value.is_markup()) out.Append(")", kGenerated);
      return;
    case Kind::kList:
      out.Append("[", kGenerated);
      AppendItems(value.items(), depth, out);
      out.Append("]", kGenerated);
      return;
    case Kind::kTuple:
      out.Append("(", kGenerated);
      AppendItems(value.items(), depth, out);
      out.Append(value.items().size() == 1 ? ",)" : ")", kGenerated);
      return;
    case Kind::kDict:
      AppendEntries(value.dict().entries, depth, out);
      return;
    case Kind::kDictView:
      AppendView(value.view(), depth, out);
      return;
    case Kind::kRange: {
      const RangeData& range = value.range();
      out.Append(fmt::format("range({}, {}", range.start, range.stop), kGenerated);
      if (range.step != 1) out.Append(fmt::format(", {}", range.step), kGenerated);
      out.Append(")", kGenerated);
      return;
    }
    case Kind::kNamespace:
      out.Append("<Namespace ", kGenerated);
      AppendEntries(value.ns().attributes.entries, depth, out);
      out.Append(">", kGenerated);
      return;
    case Kind::kIterator:
      out.Append(fmt::format("<{} object>", value.iterator().type_name), kGenerated);
      return;
    case Kind::kFunction:
      out.Append(value.function().name, kGenerated);
      return;
    case Kind::kObject:
      out.Append(value.object().Describe(), kGenerated);
      return;
  }
}

void AppendJsonString(const SourcedText& text, bool ensure_ascii, SourcedText& out) {
  constexpr std::u32string_view kEscaped = U"\"\\\n\r\t\f\b";
  constexpr std::string_view kShortForms = "\"\\nrtfb";
  out.Append("\"", kGenerated);
  out.Append(text.Mapped([=](std::string_view bytes, Alignment* alignment) {
    return EscapeCharacters(bytes, alignment, [=](char32_t c, std::string& escaped) {
      if (const size_t short_form = kEscaped.find(c); short_form != std::u32string_view::npos) {
        escaped.push_back('\\');
        escaped.push_back(kShortForms[short_form]);
        return;
      }
      const auto code = static_cast<uint32_t>(c);
      if (c < 0x20 || (ensure_ascii && c >= 0x7f && c < 0x10000)) {
        fmt::format_to(std::back_inserter(escaped), "\\u{:04x}", code);
      } else if (ensure_ascii && c >= 0x10000) {
        fmt::format_to(std::back_inserter(escaped), "\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                       0xdc00 + ((code - 0x10000) & 0x3ff));
      } else {
        EncodeUtf8(c, escaped);
      }
    });
  }));
  out.Append("\"", kGenerated);
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return FormatFloat(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonOptions& options, SourcedText& out)
      : runtime_(runtime), options_(options), out_(out) {}

  void Write(const Value& value, int depth) {
    CheckPrint(out_, depth);
    switch (value.kind()) {
      case Kind::kNone:
        out_.Append("null", value.source());
        return;
      case Kind::kBool:
        out_.Append(value.boolean() ? "true" : "false", value.source());
        return;
      case Kind::kInt:
        out_.Append(fmt::to_string(value.integer()), value.source());
        return;
      case Kind::kFloat:
        out_.Append(JsonFloat(value.real()), value.source());
        return;
      case Kind::kString:
        AppendJsonString(value.sourced_text(), options_.ensure_ascii, out_);
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
    out_.Append("\n", kGenerated);
    for (int i = 0; i < depth; ++i) out_.Append(options_.indent);
  }

  void WriteArray(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      out_.Append("[]", kGenerated);
      return;
    }
    out_.Append("[", kGenerated);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(options_.item_separator);
      NewLine(depth + 1);
      Write(items[i], depth + 1);
    }
    NewLine(depth);
    out_.Append("]", kGenerated);
  }

  void WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        AppendJsonString(key.sourced_text(), options_.ensure_ascii, out_);
        return;
      case Kind::kNone:
        out_.Append("\"null\"", kGenerated);
        return;
      case Kind::kBool:
        out_.Append(key.boolean() ? "\"true\"" : "\"false\"", kGenerated);
        return;
      case Kind::kInt:
        out_.Append(fmt::format("\"{}\"", key.integer()), kGenerated);
        return;
      case Kind::kFloat:
        out_.Append(fmt::format("\"{}\"", JsonFloat(key.real())), kGenerated);
        return;
      default:
        throw TemplateError(fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key)));
    }
  }

  void WriteObject(const DictData& dict, int depth) {
    if (dict.entries.empty()) {
      out_.Append("{}", kGenerated);
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (options_.sort_keys) {
      StableSort(entries,
                 [this](const auto* a, const auto* b) { return Less(runtime_, a->first, b->first); });
    }
    out_.Append("{", kGenerated);
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out_.Append(options_.item_separator);
      first = false;
      NewLine(depth + 1);
      WriteKey(entry->first);
      out_.Append(options_.key_separator);
      Write(entry->second, depth + 1);
    }
    NewLine(depth);
    out_.Append("}", kGenerated);
  }

  Runtime& runtime_;
  const JsonOptions& options_;
  SourcedText& out_;
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

SourcedText ToStr(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.sourced_text();
  if (value.is_undefined()) return {};
  return ToRepr(runtime, value);
}

SourcedText ToRepr(Runtime& runtime, const Value& value) {
  SourcedText out;
  AppendRepr(value, 0, out);
  runtime.ChargeString(out.size());
  return out;
}

SourcedText EscapeHtml(const SourcedText& text) {
  return text.Mapped([](std::string_view bytes, Alignment* alignment) {
    return EscapeCharacters(bytes, alignment, [](char32_t c, std::string& escaped) {
      switch (c) {
        case '&':
          escaped += "&amp;";
          break;
        case '<':
          escaped += "&lt;";
          break;
        case '>':
          escaped += "&gt;";
          break;
        case '\'':
          escaped += "&#39;";
          break;
        case '"':
          escaped += "&#34;";
          break;
        default:
          EncodeUtf8(c, escaped);
      }
    });
  });
}

SourcedText ToMarkup(Runtime& runtime, const Value& value) {
  return value.is_markup() ? value.sourced_text() : EscapeHtml(ToStr(runtime, value));
}

SourcedText ToJson(Runtime& runtime, const Value& value, const JsonOptions& options) {
  SourcedText out;
  JsonWriter(runtime, options, out).Write(value, 0);
  runtime.ChargeString(out.size());
  return out;
}

}  // namespace tandem::jinja
