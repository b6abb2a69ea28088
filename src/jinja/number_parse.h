// Text to numbers as Python's int() and float() read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem::jinja {

// base: 0 (as the prefix says) or 2 to 36. Nothing for text that is no integer of 64 bits.
std::optional<int64_t> ParseInteger(std::string_view text, int64_t base);
// Also inf, infinity and nan, with a sign, in any case.
std::optional<double> ParseReal(std::string_view text);

}  // namespace tandem::jinja
