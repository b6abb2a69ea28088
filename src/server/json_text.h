// JSON text in and out, safe against hostile input.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

// Parses one JSON value. Of duplicate keys the last one counts. Errors (kInvalidArgument): not JSON, invalid
// UTF-8, a number out of a double's range, nested deeper than kMaxJsonDepth, objects with too many members.
constexpr int kMaxJsonDepth = 64;
Result<nlohmann::ordered_json> ParseJson(std::string_view text);

// Compact; bytes that are no valid UTF-8 become U+FFFD.
std::string DumpJson(const nlohmann::ordered_json& value);
// Appends text as a JSON string, quotes included; invalid UTF-8 becomes U+FFFD.
void AppendJsonString(std::string_view text, std::string* out);

// Characters (code points) of UTF-8 text; every byte that is no continuation byte counts.
int64_t CountCodePoints(std::string_view text);

}  // namespace tandem
