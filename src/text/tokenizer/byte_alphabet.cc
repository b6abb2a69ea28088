#include "text/tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace tandem {
namespace {

constexpr uint32_t kFirstSubstitute = 0x100;

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint32_t, 256> character_of_byte{};
  std::array<int, 0x200> byte_of_character{};  // -1: none
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int& byte : alphabet.byte_of_character) byte = -1;
  uint32_t next = kFirstSubstitute;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t character = StandsForItself(byte) ? byte : next++;
    alphabet.character_of_byte[byte] = character;
    alphabet.byte_of_character[character] = static_cast<int>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::optional<std::string> BytesFromAlphabet(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t pos = 0; pos < token.size(); pos += Utf8Length(token[pos])) {
    const uint32_t character = DecodeUtf8(token, pos);
    if (character >= kAlphabet.byte_of_character.size()) return std::nullopt;
    const int byte = kAlphabet.byte_of_character[character];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

std::string BytesToAlphabet(std::string_view bytes) {
  std::string token;
  token.reserve(bytes.size() * 2);
  for (const char byte : bytes) AppendUtf8(kAlphabet.character_of_byte[static_cast<uint8_t>(byte)], &token);
  return token;
}

}  // namespace tandem
