// Typed access to the fields of a JSON document that somebody else wrote: every miss is an Error that names
// the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer/split_regex.h"

namespace tandem {

// Nested sequences in files may not be deeper than this.
inline constexpr int kMaxNesting = 16;
inline constexpr uint64_t kMaxTokenizerFileBytes = uint64_t{1} << 30;

// The file, parsed. Errors: kNotFound, kIo, kMalformedFile.
Result<nlohmann::json> ReadJsonFile(const std::string& path);

// Errors: kMalformedFile if object is no object, the field is missing or has another type.
Result<const nlohmann::json*> GetField(const nlohmann::json& object, std::string_view field);
// A view into the document.
Result<std::string_view> GetStringField(const nlohmann::json& object, std::string_view field);
Result<const nlohmann::json*> GetArrayField(const nlohmann::json& object, std::string_view field);
Result<int32_t> GetIdField(const nlohmann::json& object, std::string_view field);
// The same; fallback if the field is missing or null.
Result<bool> GetBoolField(const nlohmann::json& object, std::string_view field, bool fallback);

// {"String": "..."} or {"Regex": "..."}, as the patterns of Replace and Split are written.
Result<SplitRegex> GetPatternField(const nlohmann::json& object, std::string_view field);

}  // namespace tandem
