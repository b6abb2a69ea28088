#include "dialect/scan.h"

#include <algorithm>

namespace tandem {

Scan ScanMarker(std::string_view text, std::string_view marker, size_t* pos) {
  const std::string_view rest = text.substr(*pos);
  if (rest.starts_with(marker)) {
    *pos += marker.size();
    return Scan::kDone;
  }
  return marker.starts_with(rest) ? Scan::kMore : Scan::kNo;
}

size_t FindMarker(std::string_view text, std::string_view marker) {
  const size_t found = text.find(marker);
  if (found != std::string_view::npos) return found;
  for (size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length) {
    if (text.ends_with(marker.substr(0, length))) return text.size() - length;
  }
  return std::string_view::npos;
}

Scan ScanJsonString(std::string_view text, size_t* pos) {
  if (*pos >= text.size()) return Scan::kMore;
  if (text[*pos] != '"') return Scan::kNo;
  for (size_t i = *pos + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      *pos = i + 1;
      return Scan::kDone;
    }
  }
  return Scan::kMore;
}

Scan ScanJsonValue(std::string_view text, size_t* pos) {
  if (*pos >= text.size()) return Scan::kMore;
  if (text[*pos] == '"') return ScanJsonString(text, pos);
  if (text[*pos] == '{' || text[*pos] == '[') {
    JsonNesting nesting;
    for (size_t i = *pos; i < text.size(); ++i) {
      if (!nesting.Add(text[i])) return Scan::kNo;
      if (nesting.depth() == 0) {
        *pos = i + 1;
        return Scan::kDone;
      }
    }
    return Scan::kMore;
  }
  const size_t end =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.", *pos);
  if (end == std::string_view::npos) return Scan::kMore;
  if (end == *pos) return Scan::kNo;
  *pos = end;
  return Scan::kDone;
}

Scan ScanToolName(std::string_view text, const std::vector<std::string>& tools, size_t* pos,
                  std::string* name) {
  const size_t end =
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", *pos);
  const std::string_view found = text.substr(*pos, end == std::string_view::npos ? end : end - *pos);
  if (end == std::string_view::npos) {
    const bool may_be_tool =
        std::ranges::any_of(tools, [&](const auto& tool) { return tool.starts_with(found); });
    return may_be_tool ? Scan::kMore : Scan::kNo;
  }
  if (std::ranges::find(tools, found) == tools.end()) return Scan::kNo;
  *pos = end;
  *name = found;
  return Scan::kDone;
}

bool JsonNesting::Add(char c) {
  if (in_string_) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (c == '\\') {
      is_escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
    return true;
  }
  switch (c) {
    case '"':
      in_string_ = true;
      return true;
    case '{':
      open_.push_back('}');
      return true;
    case '[':
      open_.push_back(']');
      return true;
    case '}':
    case ']':
      if (open_.empty() || open_.back() != c) return false;
      open_.pop_back();
      return true;
    default:
      return true;
  }
}

}  // namespace tandem
