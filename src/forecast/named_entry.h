// Tables whose entries have names that people type.
#pragma once

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>

#include "base/param_error.h"

namespace tandem {

// The entry whose name, in lower case, this is in any case. Error: kNotFound, with all names; param: the
// flag, which is also what the entries are called.
template <typename Entry>
Result<Entry> FindNamed(std::span<const Entry> entries, std::string_view name, std::string_view param) {
  const auto same = [](char in_table, char typed) {
    return in_table == static_cast<char>(std::tolower(static_cast<unsigned char>(typed)));
  };
  std::string names;
  for (const Entry& entry : entries) {
    if (std::ranges::equal(entry.name, name, same)) return entry;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return MakeParamError(ErrorCode::kNotFound, param, "there is no {} '{}' in the table; there are {}", param,
                        name, names);
}

}  // namespace tandem
