// UTF-8: lengths, validation, and replacement of invalid bytes the way Rust's from_utf8_lossy and Python's
// errors="replace" do it (one U+FFFD for each maximal invalid subpart).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/provenance.h"

namespace tandem {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Bytes of the character that starts with this byte. The text must be valid UTF-8.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

bool IsValidUtf8(std::string_view text);

// Bytes of the character that bytes begins with; 0 if that is invalid, incomplete or there is none.
size_t WellFormedUtf8Length(std::string_view bytes);

// The character at text[pos], which must be valid UTF-8.
uint32_t DecodeUtf8(std::string_view text, size_t pos);
void AppendUtf8(uint32_t code_point, std::string* out);

// Appends bytes to *out with every invalid part replaced by U+FFFD and returns how many bytes it used. The
// rest (at most 3 bytes) is the beginning of a character that further bytes could complete.
size_t AppendCompleteUtf8(std::string_view bytes, std::string* out);

// All of bytes; an incomplete character at the end is replaced too. alignment, if not null, gets what was
// replaced.
std::string ReplaceInvalidUtf8(std::string_view bytes, Alignment* alignment = nullptr);

}  // namespace tandem
