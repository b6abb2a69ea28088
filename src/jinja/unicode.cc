#include "jinja/unicode.h"

#include <algorithm>

#include "base/utf8.h"
#include "jinja/characters.h"

namespace tandem::jinja {
namespace {

constexpr char32_t kInvalidBytes = 0xdc00;  // + the byte

void Append(const std::u32string& characters, std::string& out) {
  for (char32_t c : characters) EncodeUtf8(c, out);
}

// A capital sigma that ends a word becomes the final form.
bool IsFinalSigma(const std::u32string& text, size_t position) {
  size_t before = position;
  while (before > 0 && IsCaseIgnorable(text[before - 1])) --before;
  if (before == 0 || !IsCased(text[before - 1])) return false;
  size_t after = position + 1;
  while (after < text.size() && IsCaseIgnorable(text[after])) ++after;
  return after == text.size() || !IsCased(text[after]);
}

std::u32string LowercasedIn(const std::u32string& text, size_t position) {
  const char32_t c = text[position];
  return c == U'\u03A3' && IsFinalSigma(text, position) ? U"\u03C2" : Lowercased(c);
}

// map(code points, position): what becomes of the character there.
template <typename Map>
std::string MapCharacters(std::string_view text, Alignment* alignment, Map map) {
  const std::u32string code_points = DecodeUtf8(text);
  std::string out;
  out.reserve(text.size());
  size_t offset = 0;
  for (size_t i = 0; i < code_points.size(); ++i) {
    const size_t begin = offset;
    const size_t out_begin = out.size();
    NextCodePoint(text, offset);
    Append(map(code_points, i), out);
    if (alignment != nullptr) alignment->Change(offset - begin, out.size() - out_begin);
  }
  return out;
}

bool IsStripped(char32_t c, const std::u32string* chars) {
  return chars != nullptr ? chars->find(c) != std::u32string::npos : IsSpace(c);
}

std::string MapAscii(std::string_view text, Alignment* alignment, char first, char last) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= first && c <= last ? c ^ 0x20 : c);
  if (alignment != nullptr) alignment->Keep(text.size());
  return out;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

char32_t NextCodePoint(std::string_view text, size_t& offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  if (lead < 0x80) return text[offset++];
  const size_t length = WellFormedUtf8Length(text.substr(offset));
  const char32_t c = length > 0 ? tandem::DecodeUtf8(text, offset) : kInvalidBytes + lead;
  offset += std::max<size_t>(length, 1);
  return c;
}

void EncodeUtf8(char32_t c, std::string& out) {
  if (c >= kInvalidBytes + 0x80 && c <= kInvalidBytes + 0xff) {
    out.push_back(static_cast<char>(c - kInvalidBytes));
  } else {
    AppendUtf8(c, &out);
  }
}

std::u32string DecodeUtf8(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) result.push_back(NextCodePoint(text, offset));
  return result;
}

std::string EncodeUtf8(std::u32string_view text) {
  std::string result;
  result.reserve(text.size());
  for (char32_t c : text) EncodeUtf8(c, result);
  return result;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int64_t CodePointCount(std::string_view text) {
  if (IsAscii(text)) return static_cast<int64_t>(text.size());
  int64_t count = 0;
  for (size_t offset = 0; offset < text.size(); ++count) NextCodePoint(text, offset);
  return count;
}

std::string ToUpper(std::string_view text, Alignment* alignment) {
  if (IsAscii(text)) return MapAscii(text, alignment, 'a', 'z');
  return MapCharacters(text, alignment,
                       [](const std::u32string& all, size_t at) { return Uppercased(all[at]); });
}

std::string ToCasefolded(std::string_view text, Alignment* alignment) {
  if (IsAscii(text)) return MapAscii(text, alignment, 'A', 'Z');
  return MapCharacters(text, alignment,
                       [](const std::u32string& all, size_t at) { return Casefolded(all[at]); });
}

std::string ToLower(std::string_view text, Alignment* alignment) {
  if (IsAscii(text)) return MapAscii(text, alignment, 'A', 'Z');
  return MapCharacters(text, alignment, LowercasedIn);
}

std::string ToTitle(std::string_view text, Alignment* alignment) {
  return MapCharacters(text, alignment, [](const std::u32string& all, size_t at) {
    return at > 0 && IsCased(all[at - 1]) ? LowercasedIn(all, at) : Titlecased(all[at]);
  });
}

std::string ToCapitalized(std::string_view text, Alignment* alignment) {
  return MapCharacters(text, alignment, [](const std::u32string& all, size_t at) {
    return at > 0 ? LowercasedIn(all, at) : Titlecased(all[at]);
  });
}

std::string SwapCase(std::string_view text, Alignment* alignment) {
  return MapCharacters(text, alignment, [](const std::u32string& all, size_t at) {
    if (IsUpper(all[at])) return LowercasedIn(all, at);
    return IsLower(all[at]) ? Uppercased(all[at]) : std::u32string(1, all[at]);
  });
}

std::string_view StripLeft(std::string_view text, const std::string_view* chars) {
  const std::u32string set = chars != nullptr ? DecodeUtf8(*chars) : std::u32string();
  size_t offset = 0;
  while (offset < text.size()) {
    size_t next = offset;
    if (!IsStripped(NextCodePoint(text, next), chars != nullptr ? &set : nullptr)) break;
    offset = next;
  }
  return text.substr(offset);
}

std::string_view StripRight(std::string_view text, const std::string_view* chars) {
  const std::u32string set = chars != nullptr ? DecodeUtf8(*chars) : std::u32string();
  while (!text.empty()) {
    size_t start = text.size() - 1;
    for (int i = 0; i < 3 && start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80; ++i)
      --start;
    size_t end = start;
    char32_t c = NextCodePoint(text, end);
    if (end != text.size()) {  // invalid bytes: the last byte stands alone
      start = end = text.size() - 1;
      c = NextCodePoint(text, end);
    }
    if (!IsStripped(c, chars != nullptr ? &set : nullptr)) break;
    text = text.substr(0, start);
  }
  return text;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t line_end = offset;
    const char32_t c = NextCodePoint(text, offset);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && offset < text.size() && text[offset] == '\n') ++offset;
    lines.push_back(text.substr(start, (keep_ends ? offset : line_end) - start));
    start = offset;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace tandem::jinja
