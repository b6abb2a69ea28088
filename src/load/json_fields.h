// Typed reading of small JSON files: every error names the file and the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tandem {

// The text of a small file. Errors: kNotFound, kIo, kMalformedFile if it is larger than max_bytes.
Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes);

// Parses text, which must be one JSON object without duplicate keys at its top level. source: the file, for
// messages. Errors: kMalformedFile with the byte offset.
Result<nlohmann::json> ParseJsonObject(std::string_view text, const std::string& source);

Result<nlohmann::json> ReadJsonObject(const std::string& path, uint64_t max_bytes);

// The fields of one JSON object. A field that is null counts as absent. All errors are kMalformedFile.
class JsonFields {
 public:
  // where: the file, and the path of the object inside it if it is not the top one. The object must outlive
  // this.
  JsonFields(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool Has(const char* key) const;
  bool ContainsNull(const char* key) const;           // the field is there and is null
  const nlohmann::json* Find(const char* key) const;  // nullptr if absent

  Result<int64_t> Int(const char* key, int64_t min, int64_t max) const;
  Result<int64_t> IntOr(const char* key, int64_t fallback, int64_t min, int64_t max) const;
  // Accepts integers too. NaN and infinity do not occur in JSON.
  Result<double> Float(const char* key, double min, double max) const;
  Result<double> FloatOr(const char* key, double fallback, double min, double max) const;
  Result<bool> BoolOr(const char* key, bool fallback) const;
  Result<std::string> String(const char* key) const;
  Result<std::string> StringOr(const char* key, std::string_view fallback) const;
  Result<std::vector<std::string>> Strings(const char* key) const;  // an array of strings
  // An integer or an array of integers in [0, 2^31); empty if absent.
  Result<std::vector<int32_t>> TokenIds(const char* key) const;
  // The object at key. The error if there is none or it is no object.
  Result<JsonFields> Object(const char* key) const;

  const std::string& where() const { return where_; }
  // "FILE: field 'key' is WHAT", with the object's path in it.
  Error Wrong(const char* key, std::string_view what) const;

 private:
  Error Missing(const char* key) const;

  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace tandem
