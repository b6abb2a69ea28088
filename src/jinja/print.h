// Values as text: Python's str and repr, and json.dumps as Hugging Face's tojson filter calls it.
#pragma once

#include <string>
#include <string_view>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

std::string FormatFloat(double value);  // Python's repr of a float
std::string ToStr(Runtime& runtime, const Value& value);
std::string ToRepr(Runtime& runtime, const Value& value);
// \xNN, \uNNNN or \UNNNNNNNN.
void AppendEscape(char32_t c, std::string& out);
// The five characters that HTML wants escaped.
std::string EscapeHtml(std::string_view text);
// As ToStr, and escaped for HTML unless value is markup.
std::string ToMarkup(Runtime& runtime, const Value& value);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Throws TemplateError for what JSON cannot say.
std::string ToJson(Runtime& runtime, const Value& value, const JsonOptions& options);

}  // namespace tandem::jinja
