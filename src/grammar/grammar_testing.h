// What tests of grammars share: a small vocabulary, the model's where there is one, and answers drawn at
// random.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/grammar_vocabulary.h"
#include "request/grammar.h"
#include "text/tokenizer.h"

namespace tandem {

// Every byte, pieces of JSON and of words; two control tokens ("<|tool|>", "<|end|>"), the second ends
// answers; ids beyond the tokens.
GrammarVocabulary SmallVocabulary();

// Of TANDEM_TEST_MODEL; null without it.
std::unique_ptr<Tokenizer> ModelTokenizer();

// An answer of uniform draws; after soft_tokens tokens, short texts and closing characters first, so that it
// ends. Empty if it has not ended after max_tokens.
std::optional<std::string> DrawAnswer(const Grammar& grammar, const GrammarVocabulary& vocabulary,
                                      uint64_t seed, int soft_tokens = 30, int max_tokens = 2000);

// Whether the grammar takes the text, its bytes one at a time, and may end after it. vocabulary: has all
// bytes as tokens.
bool Takes(const Grammar& grammar, const GrammarVocabulary& vocabulary, std::string_view text);

}  // namespace tandem
