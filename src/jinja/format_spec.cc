#include "jinja/format_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/error.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxPrecision = 1'000;

bool IsAlign(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

// Separates the digits before the point into groups.
std::string Group(const std::string& digits, char separator, size_t group_size) {
  size_t integer = 0;
  while (integer < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[integer]))) ++integer;
  std::string result;
  for (size_t i = 0; i < integer; ++i) {
    if (i > 0 && (integer - i) % group_size == 0) result.push_back(separator);
    result.push_back(digits[i]);
  }
  return result + digits.substr(integer);
}

SourcedText Pad(Runtime& runtime, const SourcedText& prefix, const SourcedText& body, const FormatSpec& spec,
                char default_align) {
  const int64_t length = CodePointCount(prefix.bytes()) + CodePointCount(body.bytes());
  const int64_t missing = std::max<int64_t>(spec.width - length, 0);
  runtime.ChargeString(static_cast<size_t>(missing) + prefix.size() + body.size());
  SourcedText result;
  const auto fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) result.Append(spec.fill);
  };
  const char align = spec.align != 0 ? spec.align : default_align;
  const int64_t before = align == '^' ? missing / 2 : align == '<' || align == '=' ? 0 : missing;
  const int64_t inside = align == '=' ? missing : 0;
  fill(before);
  result.Append(prefix);
  fill(inside);
  result.Append(body);
  fill(missing - before - inside);
  return result;
}

std::string IntegerDigits(uint64_t magnitude, char type) {
  switch (type) {
    case 'x':
      return fmt::format("{:x}", magnitude);
    case 'X':
      return fmt::format("{:X}", magnitude);
    case 'o':
      return fmt::format("{:o}", magnitude);
    case 'b':
      return fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string RealDigits(double magnitude, const FormatSpec& spec) {
  const int precision = std::min(spec.precision < 0 ? 6 : spec.precision, kMaxPrecision);
  std::string digits;
  switch (spec.type) {
    case 'e':
    case 'E':
      digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}", magnitude * 100, precision) + "%";
      break;
    case 'g':
    case 'G':
      digits = spec.alternate ? fmt::format("{:#.{}g}", magnitude, std::max(precision, 1))
                              : fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
      break;
    default:
      if (spec.precision < 0) return FormatFloat(magnitude);
      digits = fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
      if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  }
  if (spec.type == 'E' || spec.type == 'G' || spec.type == 'F') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  }
  return digits;
}

std::string SignOf(bool negative, const FormatSpec& spec) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

SourcedText FormatNumber(Runtime& runtime, const Value& value, const FormatSpec& spec) {
  constexpr std::string_view kRealTypes = "eEfFgG%";
  const bool real = value.is(Kind::kFloat) || kRealTypes.find(spec.type) != std::string_view::npos;
  if (real && spec.type != 0 && spec.type != 'n' && kRealTypes.find(spec.type) == std::string_view::npos) {
    throw TemplateError(fmt::format("Unknown format code '{}' for object of type 'float'", spec.type));
  }
  std::string prefix;
  std::string digits;
  if (real) {
    const double number = value.AsDouble();
    prefix = SignOf(std::signbit(number) && !std::isnan(number), spec);
    digits = RealDigits(std::fabs(number), spec);
  } else {
    if (std::string_view("\0bcdoxXn", 8).find(spec.type) == std::string_view::npos) {
      throw TemplateError(fmt::format("Unknown format code '{}' for object of type 'int'", spec.type));
    }
    if (spec.precision >= 0) throw TemplateError("Precision not allowed in integer format specifier");
    const int64_t number = value.integer();
    if (spec.type == 'c') {
      if (number < 0 || number > 0x10ffff) throw TemplateError("%c arg not in range(0x110000)");
      std::string character;
      EncodeUtf8(static_cast<char32_t>(number), character);
      return Pad(runtime, {}, SourcedText(std::move(character), value.source()), spec, '<');
    }
    prefix = SignOf(number < 0, spec);
    digits = IntegerDigits(number < 0 ? 0 - static_cast<uint64_t>(number) : number, spec.type);
    if (spec.alternate && (spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b')) {
      prefix += std::string("0") + spec.type;
    }
  }
  if (spec.grouping != 0) {
    const bool by_four = spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b';
    digits = Group(digits, spec.grouping, by_four ? 4 : 3);
  }
  return Pad(runtime, SourcedText(std::move(prefix), value.source()),
             SourcedText(std::move(digits), value.source()), spec, '>');
}

}  // namespace

int ParseWidth(std::string_view text, size_t& at) {
  int number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > kMaxWidth) throw TemplateError("format width too large");
  }
  return number;
}

FormatSpec ParseFormatSpec(const SourcedText& spec_text) {
  const std::string_view text = spec_text.bytes();
  FormatSpec spec;
  size_t at = 0;
  size_t after_fill = 0;
  if (!text.empty()) NextCodePoint(text, after_fill);
  if (after_fill < text.size() && IsAlign(text[after_fill])) {
    spec.fill = spec_text.Part(text.substr(0, after_fill));
    spec.align = text[after_fill];
    at = after_fill + 1;
  } else if (!text.empty() && IsAlign(text[0])) {
    spec.align = text[0];
    at = 1;
  }
  const auto take = [&](std::string_view any_of) {
    if (at < text.size() && any_of.find(text[at]) != std::string_view::npos) return text[at++];
    return '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0 && spec.align == 0) {
    spec.fill = SourcedText("0", spec_text.source());
    spec.align = '=';
  }
  spec.width = ParseWidth(text, at);
  spec.grouping = take(",_");
  if (take(".") != 0) {
    const size_t digits = at;
    spec.precision = ParseWidth(text, at);
    if (at == digits) throw TemplateError("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) throw TemplateError("Invalid format specifier");
  return spec;
}

SourcedText FormatValue(Runtime& runtime, const Value& value, const FormatSpec& spec) {
  if (value.is_number() && !(value.is(Kind::kBool) && spec.type == 0 && spec.width == 0)) {
    return FormatNumber(runtime, value, spec);
  }
  if (!value.is_string() && !value.is(Kind::kBool)) {
    throw TemplateError(fmt::format("unsupported format string passed to {}.__format__", TypeName(value)));
  }
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.grouping != 0 || spec.sign != '-') {
    throw TemplateError("format specifier not allowed for a string");
  }
  SourcedText text = ToStr(runtime, value);
  if (spec.precision >= 0) {
    const std::string_view bytes = text.bytes();
    size_t end = 0;
    for (int i = 0; i < spec.precision && end < bytes.size(); ++i) NextCodePoint(bytes, end);
    text = text.Part(bytes.substr(0, end));
  }
  return Pad(runtime, {}, text, spec, '<');
}

}  // namespace tandem::jinja
