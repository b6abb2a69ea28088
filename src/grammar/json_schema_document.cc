#include "grammar/json_schema_document.h"

#include <charconv>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace tandem {
namespace {

constexpr int kMaxJsonDepth = 100;
// Finding a key takes as long as there are keys.
constexpr size_t kMaxKeys = 2'000;

std::optional<std::string> DecodePercent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned value = 0;
    const char* begin = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2)
      return std::nullopt;
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

std::optional<std::string> DecodeToken(std::string_view token) {
  std::string key;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '~') {
      key += token[i];
    } else if (++i < token.size() && (token[i] == '0' || token[i] == '1')) {
      key += token[i] == '0' ? '~' : '/';
    } else {
      return std::nullopt;
    }
  }
  return key;
}

const Json* Child(const Json& parent, const std::string& key) {
  if (parent.is_object()) {
    const auto found = parent.find(key);
    return found == parent.end() ? nullptr : &*found;
  }
  size_t index = 0;
  const char* end = key.data() + key.size();
  const bool is_index =
      parent.is_array() && std::from_chars(key.data(), end, index).ptr == end && !key.empty();
  return is_index && index < parent.size() ? &parent[index] : nullptr;
}

}  // namespace

Result<Json> ParseJsonText(std::string_view text, std::string_view what) {
  std::vector<std::set<std::string>> keys;
  std::optional<Error> error;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (error) return false;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      error = MakeError(ErrorCode::kInvalidArgument, "the {} has the key '{}' twice in one object", what,
                        value.get<std::string>());
    if (!keys.empty() && keys.back().size() > kMaxKeys)
      error = MakeError(ErrorCode::kInvalidArgument, "the {} has more than {} keys in one object", what,
                        kMaxKeys);
    if (depth > kMaxJsonDepth)
      error = MakeError(ErrorCode::kInvalidArgument, "the {} is nested deeper than {} levels", what,
                        kMaxJsonDepth);
    return true;
  };
  try {
    Json parsed = Json::parse(text, watch);
    if (error) return *error;
    return parsed;
  } catch (const Json::parse_error& failure) {
    if (error) return *error;
    return MakeError(ErrorCode::kInvalidArgument, "the {} is no JSON: there is a mistake at byte {}", what,
                     failure.byte);
  } catch (const Json::exception& failure) {
    if (error) return *error;
    return MakeError(ErrorCode::kInvalidArgument, "the {} is no JSON that can be read: {}", what,
                     failure.what());
  }
}

std::string JoinPointer(std::string_view pointer, std::string_view key) {
  std::string joined(pointer);
  joined += '/';
  for (const char c : key) {
    if (c == '~' || c == '/') {
      joined += c == '~' ? "~0" : "~1";
    } else {
      joined += c;
    }
  }
  return joined;
}

std::string JoinPointer(std::string_view pointer, size_t index) {
  return fmt::format("{}/{}", pointer, index);
}

Result<const Json*> ResolveReference(const Json& root, std::string_view reference, std::string_view at) {
  const auto unsupported = [&] {
    return MakeError(ErrorCode::kUnsupported,
                     "{}/$ref: '{}' is not supported; references begin with `#/` or are `#`", at, reference);
  };
  if (!reference.starts_with('#')) return unsupported();
  const std::optional<std::string> decoded = DecodePercent(reference.substr(1));
  if (!decoded || (!decoded->empty() && decoded->front() != '/')) return unsupported();
  const Json* part = &root;
  for (size_t begin = 1; begin <= decoded->size() && !decoded->empty();) {
    const size_t end = std::min(decoded->find('/', begin), decoded->size());
    const std::optional<std::string> key = DecodeToken(std::string_view(*decoded).substr(begin, end - begin));
    part = key ? Child(*part, *key) : nullptr;
    if (part == nullptr)
      return MakeError(ErrorCode::kInvalidArgument, "{}/$ref: there is nothing at '{}'", at, reference);
    begin = end + 1;
  }
  return part;
}

}  // namespace tandem
