// Strict, typed access to the fields of a JSON object: absent and null mean the default, anything of a wrong
// type or out of range is an error that names the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace tandem {

// Keeps the first error; values read after it are meaningless. Not thread-safe; the object outlives the
// reader.
class FieldReader {
 public:
  explicit FieldReader(const nlohmann::ordered_json& object, std::string prefix = "");

  // nullptr if absent or null.
  const nlohmann::ordered_json* Find(std::string_view name) const;

  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Int(std::string_view name, int64_t min, int64_t max);
  // Within [min, max], or (min, max] if min_excluded. The value also fits a float.
  std::optional<double> Number(std::string_view name, double min, double max, bool min_excluded = false);
  std::optional<std::string> String(std::string_view name);
  // One of some strings.
  std::optional<std::string> OneOf(std::string_view name, std::span<const std::string_view> values);
  // An object as it is; nullptr if absent.
  const nlohmann::ordered_json* Object(std::string_view name);
  // A list of token ids in [0, vocab_size).
  std::optional<std::vector<int32_t>> TokenIds(std::string_view name, int64_t vocab_size);

  void Fail(std::string_view name, std::string message);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const nlohmann::ordered_json& object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

// "a string", "an array", ...: for messages.
std::string_view JsonTypeName(const nlohmann::ordered_json& value);
// An integer of any JSON representation that fits int64_t.
std::optional<int64_t> AsInt64(const nlohmann::ordered_json& value);
// Token ids from a JSON array. On failure *problem says what is wrong.
bool ReadTokenIds(const nlohmann::ordered_json& array, int64_t vocab_size, std::vector<int32_t>* tokens,
                  std::string* problem);

}  // namespace tandem
