#include "jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "jinja/access.h"
#include "jinja/error.h"
#include "jinja/format_spec.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxFieldDepth = 2;

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

SourcedText AsciiRepr(const SourcedText& repr) {
  return repr.Mapped([](std::string_view bytes, Alignment* alignment) {
    return EscapeCharacters(bytes, alignment, [](char32_t c, std::string& escaped) {
      if (c < 0x80) {
        escaped.push_back(static_cast<char>(c));
      } else {
        AppendEscape(c, escaped);
      }
    });
  });
}

// str.format: fields in braces.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  SourcedText Format(const SourcedText& format, int depth) {
    if (depth > kMaxFieldDepth) throw TemplateError("Max string recursion exceeded");
    const std::string_view text = format.bytes();
    SourcedText out;
    for (size_t at = 0; at < text.size();) {
      const size_t plain_end = std::min(text.find_first_of("{}", at), text.size());
      out.Append(format, text.substr(at, plain_end - at));
      at = plain_end;
      if (at == text.size()) break;
      const char c = text[at++];
      const bool doubled = at < text.size() && text[at] == c;
      if (doubled) {
        out.Append(format, text.substr(at++, 1));
      } else if (c == '}') {
        throw TemplateError("Single '}' encountered in format string");
      } else {
        out.Append(Field(format.Part(TakeField(text, at)), depth));
        if (out.size() > kMaxOutputBytes) runtime_.ChargeString(out.size());
      }
    }
    return out;
  }

 private:
  // The text up to the closing brace, which at moves behind.
  static std::string_view TakeField(std::string_view text, size_t& at) {
    const size_t begin = at;
    for (int open = 1; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return text.substr(begin, at++ - begin);
    }
    throw TemplateError("expected '}' before end of string");
  }

  SourcedText Field(const SourcedText& field_text, int depth) {
    const std::string_view field = field_text.bytes();
    const size_t name_end = std::min(field.find_first_of("!:"), field.size());
    const Value value = Resolve(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    char conversion = 0;
    if (rest.starts_with('!')) {
      if (rest.size() < 2) throw TemplateError("end of string while looking for conversion specifier");
      conversion = rest[1];
      rest = rest.substr(2);
      if (!rest.empty() && rest[0] != ':') throw TemplateError("expected ':' after conversion specifier");
    }
    const SourcedText spec =
        rest.empty() ? SourcedText() : Format(field_text.Part(rest.substr(1)), depth + 1);
    Value converted = value;
    switch (conversion) {
      case 0:
        break;
      case 's':
        converted = Value::String(ToStr(runtime_, value));
        break;
      case 'r':
        converted = Value::String(ToRepr(runtime_, value));
        break;
      case 'a':
        converted = Value::String(AsciiRepr(ToRepr(runtime_, value)));
        break;
      default:
        throw TemplateError(fmt::format("Unknown conversion specifier {}", conversion));
    }
    if (spec.empty()) return ToStr(runtime_, converted);
    return FormatValue(runtime_, converted, ParseFormatSpec(spec));
  }

  Value Argument(std::string_view name) {
    if (name.empty() || IsNumber(name)) {
      if (name.empty() ? numbered_ : automatic_ > 0) {
        throw TemplateError("cannot mix automatic field numbering and manual field specification");
      }
      numbered_ = !name.empty();
      const size_t index = name.empty() ? automatic_++ : std::stoul(std::string(name));
      if (index >= arguments_.positional.size()) {
        throw TemplateError("Replacement index out of range for positional args tuple");
      }
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw TemplateError(fmt::format("format field '{}' is missing", name));
  }

  Value Resolve(std::string_view path) {
    const size_t head = std::min(path.find_first_of(".["), path.size());
    Value value = Argument(path.substr(0, head));
    for (size_t at = head; at < path.size();) {
      if (path[at] == '.') {
        const size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        value = GetAttribute(runtime_, value, path.substr(at + 1, end - at - 1));
        at = end;
      } else if (path[at] == '[') {
        const size_t end = path.find(']', at);
        if (end == std::string_view::npos) throw TemplateError("Missing ']' in format string");
        const std::string_view key = path.substr(at + 1, end - at - 1);
        value = GetItem(
            runtime_, value,
            IsNumber(key) ? Value::Int(std::stol(std::string(key))) : Value::String(std::string(key)));
        at = end + 1;
      } else {
        throw TemplateError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  size_t automatic_ = 0;
  bool numbered_ = false;
};

// The % operator.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& values, bool markup)
      : runtime_(runtime), values_(values), markup_(markup) {}

  SourcedText Format(const SourcedText& format) {
    const std::string_view text = format.bytes();
    SourcedText out;
    for (size_t at = 0; at < text.size();) {
      const size_t plain_end = std::min(text.find('%', at), text.size());
      out.Append(format, text.substr(at, plain_end - at));
      if (plain_end == text.size()) break;
      at = plain_end + 1;
      out.Append(Directive(format, at));
      if (out.size() > kMaxOutputBytes) runtime_.ChargeString(out.size());
    }
    const size_t given = values_.is(Kind::kTuple) ? values_.items().size() : 1;
    if (next_ < given && !values_.is(Kind::kDict) && !values_.is(Kind::kList) && !used_names_) {
      throw TemplateError("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  Value NextValue() {
    if (values_.is(Kind::kTuple)) {
      if (next_ >= values_.items().size()) throw TemplateError("not enough arguments for format string");
      return values_.items()[next_++];
    }
    if (next_++ > 0) throw TemplateError("not enough arguments for format string");
    return values_;
  }

  SourcedText Directive(const SourcedText& format, size_t& at) {
    const std::string_view text = format.bytes();
    std::optional<Value> named;
    if (at < text.size() && text[at] == '(') {
      const size_t end = text.find(')', at);
      if (end == std::string_view::npos) throw TemplateError("incomplete format key");
      if (!values_.is(Kind::kDict)) throw TemplateError("format requires a mapping");
      const Value* found = values_.dict().Find(text.substr(at + 1, end - at - 1));
      if (found == nullptr) throw TemplateError("format key is missing");
      named = *found;
      used_names_ = true;
      at = end + 1;
    }
    FormatSpec spec;
    spec.align = '>';
    bool zero = false;
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos; ++at) {
      if (text[at] == '-') spec.align = '<';
      if (text[at] == '+') spec.sign = '+';
      if (text[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') zero = true;
    }
    spec.width = Number(text, at);
    if (at < text.size() && text[at] == '.') spec.precision = Number(text, ++at);
    while (at < text.size() && (text[at] == 'h' || text[at] == 'l' || text[at] == 'L')) ++at;
    if (at >= text.size()) throw TemplateError("incomplete format");
    const char type = text[at++];
    if (type == '%') return format.Part(text.substr(at - 1, 1));
    const Value value = named ? *named : NextValue();
    if (type == 's' || type == 'r' || type == 'a') {
      SourcedText shown = type == 's' ? (markup_ ? ToMarkup(runtime_, value) : ToStr(runtime_, value))
                                      : ToRepr(runtime_, value);
      if (type == 'a') shown = AsciiRepr(shown);
      spec.sign = '-';
      return FormatValue(runtime_, Value::String(std::move(shown)), spec);
    }
    return NumberDirective(type, zero, value, spec);
  }

  SourcedText NumberDirective(char type, bool zero, const Value& value, FormatSpec spec) {
    if (type == 'c' && value.is_string()) {
      if (CodePointCount(value.text()) != 1) throw TemplateError("%c requires int or char");
      return FormatValue(runtime_, value, spec);
    }
    if (!value.is_number()) {
      value.RequireDefined();
      throw TemplateError(
          fmt::format("%{} format: a real number is required, not {}", type, TypeName(value)));
    }
    if (zero && spec.align != '<') {
      spec.fill = SourcedText("0", Source::kTemplate);
      spec.align = '=';
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (std::string_view("dxXoc").find(spec.type) != std::string_view::npos) {
      if (value.is(Kind::kFloat) && spec.type != 'd') {
        throw TemplateError(fmt::format("%{} format: an integer is required, not float", type));
      }
      const double real = value.AsDouble();
      if (value.is(Kind::kFloat) && !(real > -9.2e18 && real < 9.2e18)) {
        throw TemplateError("integer out of the 64-bit range");
      }
      const int64_t number = value.is(Kind::kFloat) ? static_cast<int64_t>(real) : value.integer();
      if (spec.precision >= 0) throw TemplateError("a precision for integers is not supported");
      return FormatValue(runtime_, Value::Int(number).From(value.source()), spec);
    }
    if (std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) {
      throw TemplateError(fmt::format("unsupported format character '{}'", type));
    }
    return FormatValue(runtime_, Value::Float(value.AsDouble()).From(value.source()), spec);
  }

  int Number(std::string_view text, size_t& at) {
    if (at < text.size() && text[at] == '*') {
      ++at;
      const Value value = NextValue();
      if (!value.is_integral() || value.integer() < 0 || value.integer() > kMaxWidth) {
        throw TemplateError("* wants a width from 0 to 1000000");
      }
      return static_cast<int>(value.integer());
    }
    return ParseWidth(text, at);
  }

  Runtime& runtime_;
  const Value& values_;
  bool markup_;
  bool used_names_ = false;
  size_t next_ = 0;
};

}  // namespace

Value FormatPercent(Runtime& runtime, const Value& format, const Value& values) {
  return runtime.NewString(
      PercentFormatter(runtime, values, format.is_markup()).Format(format.sourced_text()),
      format.is_markup());
}

Value FormatBraces(Runtime& runtime, const Value& format, const Arguments& arguments) {
  return runtime.NewString(BraceFormatter(runtime, arguments).Format(format.sourced_text(), 0),
                           format.is_markup());
}

}  // namespace tandem::jinja
