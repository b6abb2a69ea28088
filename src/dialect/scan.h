// Looks at text that may not have arrived in full: white space, markers, JSON values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Scan {
  kDone,
  kMore,  // right so far, and the text ends
  kNo,
};

inline bool IsJsonSpace(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

inline size_t SkipSpace(std::string_view text, size_t pos) {
  while (pos < text.size() && IsJsonSpace(text[pos])) ++pos;
  return pos;
}

// The end of text without white space at its end.
inline size_t TrimmedSize(std::string_view text) {
  size_t size = text.size();
  while (size > 0 && IsJsonSpace(text[size - 1])) --size;
  return size;
}

// Whether text goes on with marker at *pos, which then moves past it.
Scan ScanMarker(std::string_view text, std::string_view marker, size_t* pos);

// Where marker begins in text, be it only its beginning at the end of text; npos if nowhere.
size_t FindMarker(std::string_view text, std::string_view marker);

// A JSON string at *pos, which then moves past it.
Scan ScanJsonString(std::string_view text, size_t* pos);

// A JSON value at *pos, which then moves past it. Brackets and strings are checked, commas and colons are
// not.
Scan ScanJsonValue(std::string_view text, size_t* pos);

// A name at *pos, of letters, digits and "_.-", which is one of tools. *pos moves past it.
Scan ScanToolName(std::string_view text, const std::vector<std::string>& tools, size_t* pos,
                  std::string* name);

// The brackets and strings of a JSON text, byte by byte.
class JsonNesting {
 public:
  // False: c closes what is not open. Once depth() is back at 0 the value has ended.
  bool Add(char c);
  size_t depth() const { return open_.size(); }
  bool in_string() const { return in_string_; }

 private:
  std::string open_;
  bool in_string_ = false;
  bool is_escaped_ = false;
};

}  // namespace tandem
