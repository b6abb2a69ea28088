// Values as text: Python's str and repr, and json.dumps as Hugging Face's tojson filter calls it. value.h
// says what of it is content.
#pragma once

#include <string>
#include <string_view>

#include "jinja/runtime.h"
#include "jinja/unicode.h"
#include "jinja/value.h"

namespace tandem::jinja {

std::string FormatFloat(double value);  // Python's repr of a float
SourcedText ToStr(Runtime& runtime, const Value& value);
SourcedText ToRepr(Runtime& runtime, const Value& value);
// \xNN, \uNNNN or \UNNNNNNNN.
void AppendEscape(char32_t c, std::string& out);

// text with escape(character, out) for every character; it appends the character itself or what stands for
// it, which never has as many bytes. For SourcedText::Mapped.
template <typename Escape>
std::string EscapeCharacters(std::string_view text, Alignment* alignment, Escape escape) {
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const size_t begin = offset;
    const size_t out_begin = out.size();
    escape(NextCodePoint(text, offset), out);
    if (alignment == nullptr) continue;
    if (out.size() - out_begin == offset - begin) {
      alignment->Keep(offset - begin);
    } else {
      alignment->Change(offset - begin, out.size() - out_begin);
    }
  }
  return out;
}

// The five characters that HTML wants escaped.
SourcedText EscapeHtml(const SourcedText& text);
// As ToStr, and escaped for HTML unless value is markup.
SourcedText ToMarkup(Runtime& runtime, const Value& value);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  SourcedText indent;  // of one level
  SourcedText item_separator = SourcedText(", ", Source::kContent);
  SourcedText key_separator = SourcedText(": ", Source::kContent);
};

// Throws TemplateError for what JSON cannot say.
SourcedText ToJson(Runtime& runtime, const Value& value, const JsonOptions& options);

}  // namespace tandem::jinja
