// The `format`s of JSON schemas that answers can be held to.
#pragma once

#include <optional>
#include <string_view>

namespace tandem {

// A regular expression of texts that have the format, not all of them: no leap seconds, no 29th of February,
// plain addresses. Nothing if the format is not known.
std::optional<std::string_view> FormatRegex(std::string_view format);

}  // namespace tandem
