#include "grammar/grammar_testing.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "base/token_mask.h"

namespace tandem {
namespace {

// How much a token leads to the end: closing characters first, then short tokens.
int Rank(const std::string& token) {
  if (token.empty()) return 100;
  const char c = token.front();
  if (c == '"' || c == '}' || c == ']') return token.size() == 1 ? 0 : 5;
  if (c == ' ' || c == '\n' || c == '\t' || c == '\r') return 50;
  if (c == ',' || c == '[' || c == '{' || c == '\\') return 40;
  return 10 + static_cast<int>(std::min<size_t>(token.size(), 20));
}

}  // namespace

GrammarVocabulary SmallVocabulary() {
  GrammarVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* piece :
       {"{\"",      "\":",      ": ",   "\": \"", "\",", "\"}", "}}",  "],",   "true", "false",
        "null",     "12",       "007",  "-1",     ".5",  "e+",  "the", " the", "name", "abc",
        "\xC3\xA9", "\xE2\x82", "\xAC", "\\u",    "\\n", "  ",  "\n",  "ab",   "a\""})
    vocabulary.tokens.emplace_back(piece);
  const auto tool = static_cast<int32_t>(vocabulary.tokens.size());
  vocabulary.tokens.emplace_back("<|tool|>");
  vocabulary.tokens.emplace_back("<|end|>");
  vocabulary.vocab_size = tool + 2 + 40;
  vocabulary.control_tokens = MakeTokenMask(std::vector<int32_t>{tool, tool + 1}, vocabulary.vocab_size);
  vocabulary.end_tokens = {tool + 1};
  return vocabulary;
}

std::unique_ptr<Tokenizer> ModelTokenizer() {
  const char* path = std::getenv("TANDEM_TEST_MODEL");
  if (path == nullptr) return nullptr;
  auto tokenizer = Tokenizer::FromGguf(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

std::optional<std::string> DrawAnswer(const Grammar& grammar, const GrammarVocabulary& vocabulary,
                                      uint64_t seed, int soft_tokens, int max_tokens) {
  std::mt19937_64 random(seed);
  const std::unique_ptr<GrammarState> state = grammar.Begin();
  TokenMask mask(NumMaskWords(vocabulary.vocab_size));
  std::string text;
  for (int step = 0; step < max_tokens; ++step) {
    state->FillMask(mask);
    std::vector<int32_t> allowed;
    int best = 1000;
    for (int64_t id = 0; id < vocabulary.vocab_size; ++id) {
      if (!IsInMask(mask, static_cast<size_t>(id))) continue;
      if (step >= soft_tokens) {
        const bool ends =
            state->may_end() && std::ranges::find(vocabulary.end_tokens, id) != vocabulary.end_tokens.end();
        const int rank = ends ? -1 : Rank(vocabulary.tokens[static_cast<size_t>(id)]);
        // Now and then another one, or a pattern may never end.
        if (rank > best && random() % 64 != 0) continue;
        if (rank < best) allowed.clear();
        best = std::min(best, rank);
      }
      allowed.push_back(static_cast<int32_t>(id));
    }
    if (allowed.empty()) {
      ADD_FAILURE() << "no token may follow: " << text;
      return std::nullopt;
    }
    const int32_t token = allowed[random() % allowed.size()];
    if (!state->Accept(token)) {
      ADD_FAILURE() << "token " << token << " was allowed and is not accepted after: " << text;
      return std::nullopt;
    }
    if (state->ended()) return text;
    text += vocabulary.tokens[static_cast<size_t>(token)];
  }
  return std::nullopt;
}

bool Takes(const Grammar& grammar, const GrammarVocabulary& vocabulary, std::string_view text) {
  std::vector<int32_t> ids(256, -1);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (vocabulary.tokens[id].size() == 1)
      ids[static_cast<unsigned char>(vocabulary.tokens[id][0])] = static_cast<int32_t>(id);
  const std::unique_ptr<GrammarState> state = grammar.Begin();
  for (const char c : text)
    if (!state->Accept(ids[static_cast<unsigned char>(c)])) return false;
  return state->may_end();
}

}  // namespace tandem
