// What tests of grammars share: a small vocabulary, the model's where there is one, and answers drawn at
// random.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar_vocabulary.h"
#include "request/grammar.h"
#include "text/tokenizer.h"

namespace tandem {

// Every byte, pieces of JSON and of words; two control tokens ("<|tool|>", "<|end|>"), the second ends
// answers; ids beyond the tokens.
GrammarVocabulary SmallVocabulary();

// Of TANDEM_TEST_MODEL; null without it.
std::unique_ptr<Tokenizer> ModelTokenizer();

// Draws answers at random.
class AnswerDrawer {
 public:
  explicit AnswerDrawer(const GrammarVocabulary& vocabulary);

  struct Answer {
    std::string text;
    bool has_ended = false;
    std::string problem;  // what broke the contract of GrammarState; empty if nothing did
    int num_masks = 0;
    double masks_us = 0;  // all of them
    double slowest_mask_us = 0;
  };
  // Uniform draws; after soft_tokens tokens, short texts and closing characters first, so that it ends.
  Answer Draw(const Grammar& grammar, uint64_t seed, int soft_tokens = 30, int max_tokens = 2000) const;

 private:
  const GrammarVocabulary& vocabulary_;
  std::vector<int> ranks_;  // of the tokens: the lower, the more they lead to an end
};

// Whether the grammar takes the text, its bytes one at a time, and may end after it. vocabulary: has all
// bytes as tokens.
bool Takes(const Grammar& grammar, const GrammarVocabulary& vocabulary, std::string_view text);

}  // namespace tandem
