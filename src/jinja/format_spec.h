// The mini-language behind the colon of str.format, which % formatting shares.
#pragma once

#include <string>
#include <string_view>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace tandem::jinja {

struct FormatSpec {
  SourcedText fill = SourcedText(" ", Source::kTemplate);
  char align = 0;   // < > ^ =, 0 for the type's own
  char sign = '-';  // - + or a blank
  bool alternate = false;
  int width = 0;
  char grouping = 0;   // , or _
  int precision = -1;  // -1: none
  char type = 0;
};

inline constexpr int kMaxWidth = 1'000'000;

// The decimal number at text[at], 0 if there is none; at moves behind it. Above kMaxWidth: TemplateError.
int ParseWidth(std::string_view text, size_t& at);

// [[fill]align][sign][#][0][width][grouping][.precision][type]
FormatSpec ParseFormatSpec(const SourcedText& spec_text);

// format(value, spec) of Python, for strings and numbers.
SourcedText FormatValue(Runtime& runtime, const Value& value, const FormatSpec& spec);

}  // namespace tandem::jinja
