#include "jinja/number_parse.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

// Drops single underscores between digits; nothing if one stands elsewhere.
std::optional<std::string> DropUnderscores(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits.push_back(text[i]);
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return digits;
}

bool TakeSign(std::string_view& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  return negative;
}

}  // namespace

std::optional<int64_t> ParseInteger(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = StripLeft(StripRight(text));
  const bool negative = TakeSign(text);
  int64_t prefix_base = 0;
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    prefix_base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  }
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    text.remove_prefix(text[2] == '_' ? 3 : 2);
    base = prefix_base;
  } else if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos) {
      return std::nullopt;
    }
    base = 10;
  }
  const std::optional<std::string> digits = DropUnderscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-' || (*digits)[0] == '+') return std::nullopt;
  const std::string signed_digits = negative ? "-" + *digits : *digits;
  int64_t value = 0;
  const char* const end = signed_digits.data() + signed_digits.size();
  const auto [position, error] = std::from_chars(signed_digits.data(), end, value, static_cast<int>(base));
  if (error != std::errc() || position != end) return std::nullopt;
  return value;
}

std::optional<double> ParseReal(std::string_view text) {
  text = StripLeft(StripRight(text));
  const bool negative = TakeSign(text);
  const std::string lower = ToLower(text);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    const std::optional<std::string> digits = DropUnderscores(text);
    if (!digits || digits->empty()) return std::nullopt;
    const char first = (*digits)[0];
    if (first != '.' && (first < '0' || first > '9')) return std::nullopt;
    const char* const end = digits->data() + digits->size();
    const auto [position, error] = std::from_chars(digits->data(), end, value);
    if (position != end || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
      // from_chars leaves the value alone: tell overflow from underflow by the exponent's sign.
      value = digits->find("e-") != std::string::npos || digits->find("E-") != std::string::npos
                  ? 0.0
                  : std::numeric_limits<double>::infinity();
    }
  }
  return negative ? -value : value;
}

}  // namespace tandem::jinja
