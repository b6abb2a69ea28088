#include "load/json_fields.h"

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "load/mapped_file.h"

namespace tandem {
namespace {

using nlohmann::json;

// What a value is, for messages: "a string", "1.5".
std::string Describe(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return "a string";
  return value.dump();
}

// Integers of JSON are int64 or uint64 in the library; false if value is neither or beyond int64.
bool ToInt64(const json& value, int64_t& result) {
  if (value.is_number_unsigned()) {
    const auto raw = value.get<uint64_t>();
    if (raw > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    result = static_cast<int64_t>(raw);
    return true;
  }
  if (!value.is_number_integer()) return false;
  result = value.get<int64_t>();
  return true;
}

}  // namespace

Result<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes) {
  TANDEM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.size() > max_bytes) {
    return MakeError(ErrorCode::kMalformedFile, "{}: {} bytes, more than the {} such a file may have", path,
                     file.size(), max_bytes);
  }
  if (file.size() == 0) return std::string();
  return std::string(reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size()));
}

Result<json> ParseJsonObject(std::string_view text, const std::string& source) {
  try {
    std::set<std::string, std::less<>> keys;
    std::string duplicate;
    const auto watch_keys = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth == 1 && event == json::parse_event_t::key) {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.insert(key).second) duplicate = key;
      }
      return true;
    };
    json document = json::parse(text.begin(), text.end(), watch_keys);
    if (!document.is_object()) return MakeError(ErrorCode::kMalformedFile, "{}: not a JSON object", source);
    if (!duplicate.empty())
      return MakeError(ErrorCode::kMalformedFile, "{}: key '{}' appears twice", source, duplicate);
    return document;
  } catch (const json::parse_error& error) {
    return MakeError(ErrorCode::kMalformedFile, "{}: invalid JSON at byte {}: {}", source, error.byte,
                     error.what());
  } catch (const json::exception& error) {
    return MakeError(ErrorCode::kMalformedFile, "{}: invalid JSON: {}", source, error.what());
  }
}

Result<json> ReadJsonObject(const std::string& path, uint64_t max_bytes) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, max_bytes));
  return ParseJsonObject(text, path);
}

const json* JsonFields::Find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::Has(const char* key) const {
  return Find(key) != nullptr;
}

bool JsonFields::ContainsNull(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && found->is_null();
}

Error JsonFields::Wrong(const char* key, std::string_view what) const {
  const json* value = Find(key);
  return MakeError(ErrorCode::kMalformedFile, "{}: field '{}' is {}, not {}", where_, key,
                   value == nullptr ? "missing" : Describe(*value), what);
}

Error JsonFields::Missing(const char* key) const {
  return MakeError(ErrorCode::kMalformedFile, "{}: field '{}' is missing", where_, key);
}

Result<int64_t> JsonFields::Int(const char* key, int64_t min, int64_t max) const {
  const json* value = Find(key);
  if (value == nullptr) return Missing(key);
  int64_t result = 0;
  if (!ToInt64(*value, result) || result < min || result > max)
    return Wrong(key, fmt::format("an integer from {} to {}", min, max));
  return result;
}

Result<int64_t> JsonFields::IntOr(const char* key, int64_t fallback, int64_t min, int64_t max) const {
  return Has(key) ? Int(key, min, max) : Result<int64_t>(fallback);
}

Result<double> JsonFields::Float(const char* key, double min, double max) const {
  const json* value = Find(key);
  if (value == nullptr) return Missing(key);
  const double number = value->is_number() ? value->get<double>() : min;
  if (!value->is_number() || !(number >= min && number <= max))
    return Wrong(key, fmt::format("a number from {} to {}", min, max));
  return number;
}

Result<double> JsonFields::FloatOr(const char* key, double fallback, double min, double max) const {
  return Has(key) ? Float(key, min, max) : Result<double>(fallback);
}

Result<bool> JsonFields::BoolOr(const char* key, bool fallback) const {
  const json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Wrong(key, "true or false");
  return value->get<bool>();
}

Result<std::string> JsonFields::String(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_string()) return Wrong(key, "a string");
  return value->get_ref<const std::string&>();
}

Result<std::string> JsonFields::StringOr(const char* key, std::string_view fallback) const {
  return Has(key) ? String(key) : Result<std::string>(std::string(fallback));
}

Result<std::vector<std::string>> JsonFields::Strings(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_array()) return Wrong(key, "an array of strings");
  std::vector<std::string> result;
  for (const json& element : *value) {
    if (!element.is_string()) return Wrong(key, "one of strings only");
    result.push_back(element.get_ref<const std::string&>());
  }
  return result;
}

Result<std::vector<int32_t>> JsonFields::TokenIds(const char* key) const {
  constexpr std::string_view kWanted = "a token id or an array of token ids";
  const json* value = Find(key);
  std::vector<int32_t> result;
  if (value == nullptr) return result;
  const auto append = [&result](const json& element) {
    int64_t id = 0;
    if (!ToInt64(element, id) || id < 0 || id > std::numeric_limits<int32_t>::max()) return false;
    result.push_back(static_cast<int32_t>(id));
    return true;
  };
  if (!value->is_array()) {
    if (!append(*value)) return Wrong(key, kWanted);
    return result;
  }
  for (const json& element : *value) {
    if (!append(element)) return Wrong(key, kWanted);
  }
  return result;
}

Result<JsonFields> JsonFields::Object(const char* key) const {
  const json* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_object()) return Wrong(key, "an object");
  return JsonFields(*value, fmt::format("{}: in '{}'", where_, key));
}

}  // namespace tandem
