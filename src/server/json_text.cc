#include "server/json_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace tandem {
namespace {

using nlohmann::ordered_json;

// ordered_json looks keys up one by one, so that an object of n members costs n^2 / 2 comparisons.
constexpr int64_t kMaxKeyComparisons = 50'000'000;

// Walks over the text without building anything: nesting depth and members per object.
Status CheckShape(std::string_view text) {
  struct Level {
    bool is_object;
    int64_t num_commas;
  };
  std::vector<Level> levels;
  int64_t comparisons = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      levels.push_back({c == '{', 0});
      if (levels.size() > static_cast<size_t>(kMaxJsonDepth)) {
        return MakeError(ErrorCode::kInvalidArgument, "the JSON is nested deeper than {} levels",
                         kMaxJsonDepth);
      }
    } else if ((c == '}' || c == ']') && !levels.empty()) {
      levels.pop_back();
    } else if (c == ',' && !levels.empty() && levels.back().is_object) {
      comparisons += ++levels.back().num_commas;
      if (comparisons > kMaxKeyComparisons) {
        return MakeError(ErrorCode::kInvalidArgument, "the JSON objects have too many members");
      }
    }
  }
  return {};
}

// nlohmann's messages carry an id in brackets that says nothing to a client.
std::string_view WithoutId(std::string_view what) {
  const size_t end = what.starts_with('[') ? what.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? what : what.substr(end + 2);
}

}  // namespace

Result<ordered_json> ParseJson(std::string_view text) {
  TANDEM_RETURN_IF_ERROR(CheckShape(text));
  try {
    return ordered_json::parse(text.begin(), text.end());
  } catch (const ordered_json::exception& exception) {
    // The message may quote invalid UTF-8; DumpJson cleans it.
    return MakeError(ErrorCode::kInvalidArgument, "the request body is not valid JSON: {}",
                     WithoutId(exception.what()));
  }
}

std::string DumpJson(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void AppendJsonString(std::string_view text, std::string* out) {
  bool plain = true;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    plain = plain && byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\';
  }
  if (!plain) {
    *out += DumpJson(ordered_json(std::string(text)));
    return;
  }
  out->push_back('"');
  out->append(text);
  out->push_back('"');
}

int64_t CountCodePoints(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0U) != 0x80U ? 1 : 0;
  return count;
}

}  // namespace tandem
