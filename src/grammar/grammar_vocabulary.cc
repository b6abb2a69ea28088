#include "grammar/grammar_vocabulary.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

GrammarVocabulary MakeGrammarVocabulary(const Tokenizer& tokenizer, int64_t vocab_size,
                                        std::span<const int32_t> end_tokens) {
  // A model may also know fewer tokens than its tokenizer; those cannot be drawn.
  const int64_t num_tokens = std::min(tokenizer.vocab_size(), vocab_size);
  GrammarVocabulary vocabulary;
  vocabulary.vocab_size = vocab_size;
  vocabulary.end_tokens.assign(end_tokens.begin(), end_tokens.end());
  std::vector<int32_t> control;
  vocabulary.tokens.reserve(static_cast<size_t>(num_tokens));
  for (int32_t id = 0; id < num_tokens; ++id) {
    vocabulary.tokens.push_back(tokenizer.TokenBytes(id));
    if (tokenizer.IsSpecial(id) || tokenizer.IsControl(id)) control.push_back(id);
  }
  vocabulary.control_tokens = MakeTokenMask(control, vocab_size);
  for (const int32_t id : end_tokens)
    TANDEM_CHECK(0 <= id && id < vocab_size, "end token {} of {}", id, vocab_size);
  return vocabulary;
}

}  // namespace tandem
