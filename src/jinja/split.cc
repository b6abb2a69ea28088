#include "jinja/split.h"

#include <algorithm>

#include "jinja/characters.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

// The end of the run of non-spaces at the start of text.
size_t WordEnd(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    if (IsSpace(NextCodePoint(text, offset))) return begin;
  }
  return text.size();
}

std::vector<std::string_view> AllWords(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = StripLeft(text); !text.empty(); text = StripLeft(text)) {
    const size_t end = WordEnd(text);
    words.push_back(text.substr(0, end));
    text = text.substr(end);
  }
  return words;
}

}  // namespace

std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t max_splits, bool from_right) {
  std::vector<std::string_view> words = AllWords(text);
  if (max_splits < 0 || words.size() <= static_cast<size_t>(max_splits)) return words;
  if (from_right) {
    std::vector<std::string_view> tail(words.end() - max_splits, words.end());
    const char* const end = tail.empty() ? text.data() + text.size() : tail.front().data();
    const std::string_view head = StripRight(text.substr(0, static_cast<size_t>(end - text.data())));
    if (!head.empty()) tail.insert(tail.begin(), head);
    return tail;
  }
  words.resize(static_cast<size_t>(max_splits));
  const size_t start =
      words.empty() ? 0 : static_cast<size_t>(words.back().data() - text.data()) + words.back().size();
  const std::string_view rest = StripLeft(text.substr(start));
  if (!rest.empty()) words.push_back(rest);
  return words;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t max_splits,
                                      bool from_right) {
  std::vector<std::string_view> parts;
  for (int64_t splits = 0; max_splits < 0 || splits < max_splits; ++splits) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.push_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

SourcedText ReplaceText(Runtime& runtime, const SourcedText& text, std::string_view old_text,
                        const SourcedText& new_text, int64_t max_count) {
  const std::string_view bytes = text.bytes();
  SourcedText result;
  int64_t count = 0;
  size_t offset = 0;
  const auto may_replace = [&] { return max_count < 0 || count < max_count; };
  while (may_replace()) {
    if (old_text.empty()) {
      result.Append(new_text);
      ++count;
      if (offset == bytes.size()) break;
      const size_t begin = offset;
      NextCodePoint(bytes, offset);
      result.Append(text, bytes.substr(begin, offset - begin));
    } else {
      const size_t at = bytes.find(old_text, offset);
      if (at == std::string_view::npos) break;
      result.Append(text, bytes.substr(offset, at - offset));
      result.Append(new_text);
      offset = at + old_text.size();
      ++count;
    }
    if (result.size() > kMaxOutputBytes) runtime.ChargeString(result.size());
  }
  result.Append(text, bytes.substr(offset));
  runtime.ChargeString(result.size());
  return result;
}

}  // namespace tandem::jinja
