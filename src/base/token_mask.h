// Sets of token ids, a bit each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// Bit i % 32 of word i / 32 is token i's; as many words as a vocabulary needs. Empty: every token.
using TokenMask = std::vector<uint32_t>;

constexpr size_t NumMaskWords(int64_t vocab_size) {
  return (static_cast<size_t>(vocab_size) + 31) / 32;
}

// tokens: in [0, vocab_size).
inline TokenMask MakeTokenMask(std::span<const int32_t> tokens, int64_t vocab_size) {
  TokenMask mask(NumMaskWords(vocab_size));
  for (const int32_t token : tokens) mask[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
  return mask;
}

// Empty, or the mask of such a vocabulary.
constexpr bool FitsVocab(std::span<const uint32_t> mask, int64_t vocab_size) {
  return mask.empty() || mask.size() == NumMaskWords(vocab_size);
}

// mask: not empty, of a vocabulary that has the token.
inline bool IsInMask(std::span<const uint32_t> mask, size_t token) {
  return (mask[token / 32] >> (token % 32) & 1U) != 0;
}

}  // namespace tandem
