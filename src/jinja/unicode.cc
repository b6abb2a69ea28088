#include "jinja/unicode.h"

#include <algorithm>

#include "jinja/unicode_tables.h"

namespace tandem::jinja {
namespace {

bool InRanges(const CodePointRange* ranges, size_t size, char32_t c) {
  const CodePointRange* end = ranges + size;
  const CodePointRange* it = std::upper_bound(
      ranges, end, c, [](char32_t value, const CodePointRange& r) { return value < r.first; });
  return it != ranges && c <= (it - 1)->last;
}

// Ranges of different strides may overlap, so a hit can lie a few entries to the left.
bool MapCase(const CaseRange* ranges, size_t size, char32_t c, char32_t& mapped) {
  const CaseRange* end = ranges + size;
  const CaseRange* it =
      std::upper_bound(ranges, end, c, [](char32_t value, const CaseRange& r) { return value < r.first; });
  for (int tries = 0; tries < 4 && it != ranges; ++tries) {
    --it;
    if (c <= it->last && (c - it->first) % it->stride == 0) {
      mapped = static_cast<char32_t>(static_cast<int64_t>(c) + it->delta);
      return true;
    }
  }
  return false;
}

const SpecialCase* FindSpecial(char32_t c) {
  const SpecialCase* end = kSpecialCases + kSpecialCasesSize;
  const SpecialCase* it = std::lower_bound(
      kSpecialCases, end, c, [](const SpecialCase& s, char32_t value) { return s.code_point < value; });
  return it != end && it->code_point == c ? it : nullptr;
}

void AppendAll(const uint32_t (&code_points)[3], std::string& out) {
  for (uint32_t c : code_points) {
    if (c != 0) EncodeUtf8(static_cast<char32_t>(c), out);
  }
}

char32_t SimpleUpper(char32_t c) {
  char32_t mapped = c;
  MapCase(kToUpper, kToUpperSize, c, mapped);
  return mapped;
}

char32_t SimpleLower(char32_t c) {
  char32_t mapped = c;
  MapCase(kToLower, kToLowerSize, c, mapped);
  return mapped;
}

void AppendUpper(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (const SpecialCase* special = FindSpecial(c)) {
    AppendAll(special->upper, out);
  } else {
    EncodeUtf8(SimpleUpper(c), out);
  }
}

void AppendTitle(char32_t c, std::string& out) {
  if (const SpecialCase* special = FindSpecial(c)) {
    AppendAll(special->title, out);
    return;
  }
  char32_t mapped = c;
  if (MapCase(kToTitle, kToTitleSize, c, mapped)) {
    EncodeUtf8(mapped, out);
  } else {
    AppendUpper(c, out);
  }
}

bool IsCaseIgnorable(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xa8 || c == 0xad || c == 0xaf ||
         c == 0xb4 || c == 0xb7 || c == 0xb8 || (c >= 0x2b0 && c <= 0x36f) || c == 0x2019;
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

void AppendLower(const std::u32string& text, size_t position, std::string& out) {
  const char32_t c = text[position];
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x3a3) {
    EncodeUtf8(IsFinalSigma(text, position) ? char32_t{0x3c2} : char32_t{0x3c3}, out);
  } else if (const SpecialCase* special = FindSpecial(c)) {
    AppendAll(special->lower, out);
  } else {
    EncodeUtf8(SimpleLower(c), out);
  }
}

bool IsStripped(char32_t c, const std::u32string* chars) {
  return chars != nullptr ? chars->find(c) != std::u32string::npos : IsSpace(c);
}

std::string MapAscii(std::string_view text, char first, char last) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= first && c <= last ? c ^ 0x20 : c);
  return out;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

char32_t NextCodePoint(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(offset);
  if (lead < 0x80) return text[offset++];
  const int extra = lead >= 0xf0 && lead <= 0xf4 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead >= 0xc2 && lead <= 0xf4 && offset + extra < text.size()) {
    char32_t c = lead & (0x3f >> extra);
    bool valid = true;
    for (int i = 1; i <= extra; ++i) {
      valid = valid && (byte(offset + i) & 0xc0) == 0x80;
      c = (c << 6) | (byte(offset + i) & 0x3f);
    }
    constexpr char32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
    if (valid && c >= kSmallest[extra] && c <= 0x10ffff && !(c >= 0xd800 && c <= 0xdfff)) {
      offset += extra + 1;
      return c;
    }
  }
  ++offset;
  return 0xdc00 + lead;
}

void EncodeUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else if (c >= 0xdc80 && c <= 0xdcff) {
    out.push_back(static_cast<char>(c - 0xdc00));  // an invalid byte, kept as it was
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
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

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool IsCased(char32_t c) {
  return InRanges(kCased, kCasedSize, c);
}
bool IsUpper(char32_t c) {
  return IsCased(c) && SimpleUpper(c) == c && SimpleLower(c) != c;
}
bool IsLower(char32_t c) {
  return IsCased(c) && SimpleLower(c) == c;
}
bool IsAlphabetic(char32_t c) {
  return InRanges(kAlphabetic, kAlphabeticSize, c);
}
bool IsNumeric(char32_t c) {
  return InRanges(kNumeric, kNumericSize, c);
}
bool IsDigit(char32_t c) {
  return InRanges(kDigit, kDigitSize, c);
}
bool IsPrintable(char32_t c) {
  return !InRanges(kUnprintable, kUnprintableSize, c) && !(c >= 0xd800 && c <= 0xdfff);
}
bool IsWordCharacter(char32_t c) {
  return c == '_' || IsAlphabetic(c) || IsNumeric(c);
}

std::string ToUpper(std::string_view text) {
  if (IsAscii(text)) return MapAscii(text, 'a', 'z');
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) AppendUpper(NextCodePoint(text, offset), out);
  return out;
}

std::string ToLower(std::string_view text) {
  if (IsAscii(text)) return MapAscii(text, 'A', 'Z');
  const std::u32string code_points = DecodeUtf8(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < code_points.size(); ++i) AppendLower(code_points, i, out);
  return out;
}

std::string ToTitle(std::string_view text) {
  const std::u32string code_points = DecodeUtf8(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (in_word) {
      AppendLower(code_points, i, out);
    } else {
      AppendTitle(code_points[i], out);
    }
    in_word = IsCased(code_points[i]);
  }
  return out;
}

std::string ToCapitalized(std::string_view text) {
  const std::u32string code_points = DecodeUtf8(text);
  std::string out;
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (i == 0) {
      AppendTitle(code_points[i], out);
    } else {
      AppendLower(code_points, i, out);
    }
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  const std::u32string code_points = DecodeUtf8(text);
  std::string out;
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (IsUpper(code_points[i])) {
      AppendLower(code_points, i, out);
    } else if (IsLower(code_points[i])) {
      AppendUpper(code_points[i], out);
    } else {
      EncodeUtf8(code_points[i], out);
    }
  }
  return out;
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
