// What grammars need to know of a tokenizer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/token_mask.h"
#include "text/tokenizer.h"

namespace tandem {

// Plain data, independent of the tokenizer that it was made from.
struct GrammarVocabulary {
  // The model's; ids from tokens.size() on are of no token.
  int64_t vocab_size = 0;
  // The bytes that each token adds to an answer.
  std::vector<std::string> tokens;
  // Structure and special tokens: no grammar has them but one that names them. vocab_size bits.
  TokenMask control_tokens;
  std::vector<int32_t> end_tokens;
};

// vocab_size: the model's. end_tokens: ids below vocab_size that end an answer; may be empty, and
// then no answer ends.
GrammarVocabulary MakeGrammarVocabulary(const Tokenizer& tokenizer, int64_t vocab_size,
                                        std::span<const int32_t> end_tokens);

}  // namespace tandem
