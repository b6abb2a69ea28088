#include "jinja/literal.h"

#include <fmt/format.h>

#include <charconv>

#include "jinja/error.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

bool IsDigitOf(char c, int base) {
  if (base == 16) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  return c >= '0' && c < '0' + base;
}

// The end of digits with single underscores between them; offset itself if there are none.
size_t DigitsEnd(std::string_view source, size_t offset, int base, bool may_start_with_underscore = false) {
  size_t end = offset;
  size_t at = offset;
  if (may_start_with_underscore && at < source.size() && source[at] == '_') ++at;
  while (at < source.size() && IsDigitOf(source[at], base)) {
    end = ++at;
    if (at < source.size() && source[at] == '_') ++at;
  }
  return end;
}

size_t ExponentEnd(std::string_view source, size_t offset) {
  if (offset >= source.size() || (source[offset] != 'e' && source[offset] != 'E')) return offset;
  size_t at = offset + 1;
  if (at < source.size() && (source[at] == '+' || source[at] == '-')) ++at;
  const size_t end = DigitsEnd(source, at, 10);
  return end > at ? end : offset;
}

bool ReadFloat(std::string_view source, size_t& offset, Token& token) {
  const size_t integer_end = DigitsEnd(source, offset, 10);
  if (integer_end == offset) return false;
  size_t end = integer_end;
  if (end < source.size() && source[end] == '.') {
    const size_t fraction_end = DigitsEnd(source, end + 1, 10);
    if (fraction_end > end + 1) end = fraction_end;
  }
  end = ExponentEnd(source, end);
  if (end == integer_end) return false;
  std::string text(source.substr(offset, end - offset));
  std::erase(text, '_');
  const auto [position, error] = std::from_chars(text.data(), text.data() + text.size(), token.real);
  if (error != std::errc()) {
    throw TemplateError(fmt::format("number {} out of range", text.substr(0, 40)), token.line);
  }
  token.type = TokenType::kFloat;
  offset = end;
  return true;
}

}  // namespace

bool ReadNumber(std::string_view source, size_t& offset, Token& token) {
  if (!IsDigitOf(source[offset], 10)) return false;
  const bool after_dot = offset > 0 && source[offset - 1] == '.';
  if (!after_dot && ReadFloat(source, offset, token)) return true;
  int base = 10;
  size_t digits = offset;
  size_t end = offset;
  if (source[offset] == '0') {
    const char letter = offset + 1 < source.size() ? static_cast<char>(source[offset + 1] | 0x20) : '\0';
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) {
      digits = offset + 2;
      end = DigitsEnd(source, digits, base, true);
    }
    if (end <= digits) {  // 0, 00, 0_0
      base = 10;
      digits = offset;
      for (end = offset + 1; end < source.size(); ++end) {
        if (source[end] == '_' && end + 1 < source.size() && source[end + 1] == '0') ++end;
        if (source[end] != '0') break;
      }
    }
  } else {
    end = DigitsEnd(source, offset, 10);
  }
  std::string text(source.substr(digits, end - digits));
  std::erase(text, '_');
  const auto [position, error] = std::from_chars(text.data(), text.data() + text.size(), token.integer, base);
  if (error != std::errc()) {
    throw TemplateError(fmt::format("integer {} out of the 64-bit range", text.substr(0, 40)), token.line);
  }
  token.type = TokenType::kInteger;
  offset = end;
  return true;
}

std::string UnescapeString(std::string_view body, int line) {
  std::string out;
  size_t at = 0;
  const auto read_digits = [&](size_t max_digits, int base) {
    uint32_t code = 0;
    size_t count = 0;
    for (; count < max_digits && at < body.size() && IsDigitOf(body[at], base); ++count, ++at) {
      const char c = static_cast<char>(body[at] | 0x20);
      code = code * static_cast<uint32_t>(base) +
             static_cast<uint32_t>(IsDigitOf(body[at], 10) ? body[at] - '0' : c - 'a' + 10);
    }
    if (base == 16 && count != max_digits) throw TemplateError("truncated escape in a string", line);
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
      throw TemplateError("an escape in a string is no Unicode character", line);
    }
    EncodeUtf8(static_cast<char32_t>(code), out);
  };
  while (at < body.size()) {
    const char c = body[at++];
    if (c != '\\' || at == body.size()) {
      out.push_back(c);
      continue;
    }
    const char escape = body[at];
    if (escape >= '0' && escape <= '7') {
      read_digits(3, 8);
      continue;
    }
    ++at;
    constexpr std::string_view kEscapes = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t found = kEscapes.find(escape); found != std::string_view::npos) {
      out.push_back(kMeanings[found]);
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      read_digits(escape == 'x' ? 2 : escape == 'u' ? 4 : 8, 16);
    } else if (escape == 'N') {
      throw TemplateError("named characters (\\N) are not supported", line);
    } else if (escape != '\n') {
      out.push_back('\\');
      out.push_back(escape);
    }
  }
  return out;
}

}  // namespace tandem::jinja
