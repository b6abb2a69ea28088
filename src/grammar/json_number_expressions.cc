#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "grammar/json_text_expressions.h"

namespace tandem {
namespace {

using Int = Int128;

// Those of an unbounded integer, so that it fits into 64 bits.
constexpr int kMaxIntegerDigits = 18;
// With a fraction behind them all digits are those of a double.
constexpr int kMaxDigitsBeforePoint = 9;
constexpr int kMaxFractionDigits = 6;

Int PowerOfTen(int n) {
  Int power = 1;
  for (int i = 0; i < n; ++i) power *= 10;
  return power;
}

std::string Text(Int value) {
  std::string text;
  do text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
  while ((value /= 10) > 0);
  return text;
}

Expression DigitRange(char first, char last) {
  return OneOf({{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}});
}

Expression AnyDigits(size_t n) {
  return Repeat(DigitRange('0', '9'), static_cast<int64_t>(n), static_cast<int64_t>(n));
}

// Texts of as many digits as both have, from low to high.
Expression DigitsBetween(const std::string& low, const std::string& high) {
  if (low.empty()) return Literal("");
  const std::string low_rest = low.substr(1), high_rest = high.substr(1);
  const std::string zeros(low_rest.size(), '0'), nines(low_rest.size(), '9');
  if (low[0] == high[0]) return Sequence({Literal(low.substr(0, 1)), DigitsBetween(low_rest, high_rest)});
  std::vector<Expression> options;
  char first = low[0], last = high[0];
  if (low_rest != zeros) {
    options.push_back(Sequence({Literal(low.substr(0, 1)), DigitsBetween(low_rest, nines)}));
    ++first;
  }
  if (high_rest != nines) {
    options.push_back(Sequence({Literal(high.substr(0, 1)), DigitsBetween(zeros, high_rest)}));
    --last;
  }
  if (first <= last) options.push_back(Sequence({DigitRange(first, last), AnyDigits(low_rest.size())}));
  return Choice(std::move(options));
}

// 0 <= low.
Expression NaturalsBetween(Int low, Int high) {
  std::vector<Expression> options;
  while (low <= high) {
    const std::string low_text = Text(low);
    const Int last = std::min(high, PowerOfTen(static_cast<int>(low_text.size())) - 1);
    options.push_back(DigitsBetween(low_text, Text(last)));
    low = last + 1;
  }
  return Choice(std::move(options));
}

Expression IntegersFromTo(Int min, Int max) {
  std::vector<Expression> options;
  if (max >= 0 && min <= max) options.push_back(NaturalsBetween(std::max<Int>(min, 0), max));
  if (min < 0 && min <= max)
    options.push_back(Sequence({Literal("-"), NaturalsBetween(std::max<Int>(1, -max), -min)}));
  return Choice(std::move(options));
}

// Numbers low to high (both at least 0, no -0) with a point, in units of 10^-kMaxFractionDigits; what lies
// between is said with fewer digits too.
Expression FractionsBetween(Int low, Int high) {
  std::vector<Expression> options;
  const Int one = PowerOfTen(kMaxFractionDigits);
  // Whole numbers behind which every fraction fits.
  const Int first_whole = (low + one - 1) / one, end_whole = (high + 1) / one;
  if (first_whole < end_whole)
    options.push_back(Sequence({NaturalsBetween(first_whole, end_whole - 1), Literal("."),
                                Repeat(DigitRange('0', '9'), 1, kMaxFractionDigits)}));
  // The whole numbers at both ends.
  std::vector<Int> ends = {low / one};
  if (high / one != ends[0]) ends.push_back(high / one);
  for (const Int whole : ends) {
    if (whole >= first_whole && whole < end_whole) continue;
    for (int digits = 1; digits <= kMaxFractionDigits; ++digits) {
      const Int unit = PowerOfTen(kMaxFractionDigits - digits), per_one = PowerOfTen(digits);
      const Int from = std::max<Int>(0, (low - whole * one + unit - 1) / unit);
      const Int to = std::min<Int>(per_one - 1, (high - whole * one) / unit);
      if (from > to) continue;
      const auto padded = [&](Int value) {
        const std::string text = Text(value);
        return std::string(static_cast<size_t>(digits) - text.size(), '0') + text;
      };
      options.push_back(Sequence({Literal(Text(whole) + "."), DigitsBetween(padded(from), padded(to))}));
    }
  }
  return Choice(std::move(options));
}

// Towards the inside of the bounds, in units of 10^-digits.
Int Scaled(const NumberBound& bound, int digits, bool is_lower) {
  const auto per_one = static_cast<double>(PowerOfTen(digits));
  const long double scaled = static_cast<long double>(bound.value) * per_one;
  const long double nearest = std::round(scaled);
  // A bound is meant as it is written: 0.1, which is the double next to it.
  const bool is_exact = std::fabs(nearest) < 0x1p53L && static_cast<double>(nearest) / per_one == bound.value;
  if (is_exact) return static_cast<Int>(nearest) + (bound.is_exclusive ? (is_lower ? 1 : -1) : 0);
  return is_lower ? static_cast<Int>(std::floor(scaled)) + 1 : static_cast<Int>(std::ceil(scaled)) - 1;
}

}  // namespace

Expression IntegersBetween(const IntegerBounds& bounds) {
  const Int limit = PowerOfTen(kMaxIntegerDigits) - 1;
  if (!bounds.min && !bounds.max)
    return Choice({Literal("0"), Sequence({Optional(Literal("-")), DigitRange('1', '9'),
                                           Repeat(DigitRange('0', '9'), 0, kMaxIntegerDigits - 1)})});
  const Int min = bounds.min ? *bounds.min : std::min(-limit, *bounds.max);
  const Int max = bounds.max ? *bounds.max : std::max(limit, *bounds.min);
  return IntegersFromTo(min, max);
}

Expression NumbersBetween(std::optional<NumberBound> min, std::optional<NumberBound> max) {
  if (!min && !max) {
    const Expression digit = DigitRange('0', '9');
    return Sequence(
        {Optional(Literal("-")),
         Choice({Literal("0"), Sequence({DigitRange('1', '9'), Repeat(digit, 0, kMaxIntegerDigits - 1)})}),
         Optional(Sequence({Literal("."), Repeat(digit, 1, kMaxIntegerDigits)})),
         Optional(Sequence({OneOf({{'E', 'E'}, {'e', 'e'}}), Optional(OneOf({{'+', '+'}, {'-', '-'}})),
                            Repeat(digit, 1, 2)}))});
  }
  const Int limit = PowerOfTen(kMaxIntegerDigits) - 1;
  const Int whole_min = min ? Scaled(*min, 0, true) : -limit,
            whole_max = max ? Scaled(*max, 0, false) : limit;
  std::vector<Expression> options;
  options.push_back(IntegersFromTo(whole_min, whole_max));
  const Int most = PowerOfTen(kMaxDigitsBeforePoint + kMaxFractionDigits) - 1;
  const Int low = min ? std::max(Scaled(*min, kMaxFractionDigits, true), -most) : -most;
  const Int high = max ? std::min(Scaled(*max, kMaxFractionDigits, false), most) : most;
  if (high >= 0 && low <= high) options.push_back(FractionsBetween(std::max<Int>(low, 0), high));
  if (low < 0 && low <= high)
    options.push_back(Sequence({Literal("-"), FractionsBetween(std::max<Int>(1, -high), -low)}));
  return Choice(std::move(options));
}

}  // namespace tandem
