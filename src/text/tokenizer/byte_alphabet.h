// The 256 printable characters that byte-level BPE vocabularies spell bytes with (GPT-2's table: printable
// Latin-1 bytes stand for themselves, the others for U+0100 and following).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// How SentencePiece's vocabularies spell a space: U+2581.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// The bytes that a token spells; nullopt if it has a character outside the alphabet.
std::optional<std::string> BytesFromAlphabet(std::string_view token);

// The UTF-8 of the characters that spell these bytes.
std::string BytesToAlphabet(std::string_view bytes);

}  // namespace tandem
