// The regular expressions of tokenizers: written for Oniguruma (Ruby syntax), run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/provenance.h"
#include "base/result.h"

namespace tandem {

// Rewrites what the two engines read differently: \s (Unicode white space only), general categories of
// characters newer than PCRE2's tables, {n,m}+ (no possessive in Ruby syntax).
// Errors: kUnsupported for a construct whose meaning differs and that no published tokenizer uses.
Result<std::string> TranslateOniguruma(std::string_view pattern);

// Immutable after Compile; any thread.
class SplitRegex {
 public:
  static Result<SplitRegex> Compile(std::string_view oniguruma_pattern);
  // Matches this text and nothing else. literal is not empty.
  static SplitRegex Literal(std::string_view literal);

  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };
  // The first match at or after `from` that is not empty. text must be valid UTF-8; `from` a border between
  // characters.
  std::optional<Match> Find(std::string_view text, size_t from) const;
  // text with content for every match. alignment, if not null, gets what was replaced.
  std::string ReplaceAll(std::string text, std::string_view content, Alignment* alignment = nullptr) const;

 private:
  struct Code;
  SplitRegex() = default;

  std::shared_ptr<const Code> code_;  // null: literal_
  std::string literal_;
};

}  // namespace tandem
