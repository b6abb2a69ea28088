// TANDEM_CHECK: for broken invariants only. Bad input, files and capacity are Result<T> (base/result.h).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tandem {

// Prints file:line, the condition and the message to stderr, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace tandem

// TANDEM_CHECK(cond) or TANDEM_CHECK(cond, "format {}", args...): stays on in release builds.
#define TANDEM_CHECK(cond, ...)                                                                            \
  do {                                                                                                     \
    if (!(cond)) [[unlikely]] {                                                                            \
      ::tandem::CheckFailed(__FILE__, __LINE__, #cond, std::string(__VA_OPT__(fmt::format(__VA_ARGS__)))); \
    }                                                                                                      \
  } while (false)
