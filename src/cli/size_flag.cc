#include "cli/size_flag.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "base/param_error.h"

namespace tandem {
namespace {

struct Suffix {
  std::string_view name;  // lower case
  double factor;
};

constexpr double kKibi = 1024;
constexpr std::array<Suffix, 14> kSuffixes = {{{"", 1},
                                               {"b", 1},
                                               {"k", kKibi},
                                               {"m", kKibi* kKibi},
                                               {"g", kKibi* kKibi* kKibi},
                                               {"t", kKibi* kKibi* kKibi* kKibi},
                                               {"kib", kKibi},
                                               {"mib", kKibi* kKibi},
                                               {"gib", kKibi* kKibi* kKibi},
                                               {"tib", kKibi* kKibi* kKibi* kKibi},
                                               {"kb", 1e3},
                                               {"mb", 1e6},
                                               {"gb", 1e9},
                                               {"tb", 1e12}}};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

Error BadSize(std::string_view text) {
  return MakeError(ErrorCode::kInvalidArgument,
                   "'{}' is no size: give bytes (4GiB, 512MB, 1048576) or KV tokens (26400tok)", text);
}

}  // namespace

Result<CacheSize> ParseSize(std::string_view text) {
  double number = 0;
  const auto [end, failure] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (failure != std::errc() || !std::isfinite(number) || number < 0) return BadSize(text);
  std::string suffix = Lower(text.substr(static_cast<size_t>(end - text.data())));
  while (suffix.starts_with(' ')) suffix.erase(0, 1);
  CacheSize size;
  double factor = 0;
  if (suffix == "tok") {
    if (number != std::floor(number)) return BadSize(text);
    size.unit = CacheSize::Unit::kTokens;
    factor = 1;
  }
  for (const Suffix& known : kSuffixes) {
    if (known.name == suffix) factor = known.factor;
  }
  constexpr double kLimit = 9e18;  // below 2^63
  const double amount = number * factor;
  if (factor == 0 || amount > kLimit) return BadSize(text);
  size.amount = static_cast<int64_t>(amount);
  return size;
}

Result<std::optional<CacheSize>> ParseTierSize(std::string_view flag, std::string_view text) {
  if (text.empty()) return std::optional<CacheSize>();
  const auto size = ParseSize(text);
  if (!size.ok()) return MakeParamError(size.error().code, flag, "{}", size.error().message);
  if (size->amount == 0) return MakeParamError(ErrorCode::kInvalidArgument, flag, "the size must be above 0");
  return std::optional<CacheSize>(*size);
}

Result<int64_t> ParseByteSize(std::string_view text) {
  TANDEM_ASSIGN_OR_RETURN(const CacheSize size, ParseSize(text));
  if (size.unit != CacheSize::Unit::kBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "'{}' is no size in bytes (such as 32MiB)", text);
  }
  return size.amount;
}

}  // namespace tandem
