// Tests that take minutes run where TANDEM_NIGHTLY=1 asks for them (scripts/test.sh nightly), or do more of
// what they do.
#pragma once

#include <cstdlib>
#include <string_view>

namespace tandem {

inline bool IsNightly() {
  const char* const nightly = std::getenv("TANDEM_NIGHTLY");
  return nightly != nullptr && std::string_view(nightly) == "1";
}

}  // namespace tandem
