#include "grammar/grammar_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/token_mask.h"

namespace tandem {
namespace {

constexpr int kEndRank = -1, kNeverRank = 1000;

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

AnswerDrawer::AnswerDrawer(const GrammarVocabulary& vocabulary)
    : vocabulary_(vocabulary), ranks_(static_cast<size_t>(vocabulary.vocab_size), kNeverRank) {
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) ranks_[id] = Rank(vocabulary.tokens[id]);
  for (const int32_t id : vocabulary.end_tokens) ranks_[static_cast<size_t>(id)] = kEndRank;
}

AnswerDrawer::Answer AnswerDrawer::Draw(const Grammar& grammar, uint64_t seed, int soft_tokens,
                                        int max_tokens) const {
  std::mt19937_64 random(seed);
  const std::unique_ptr<GrammarState> state = grammar.Begin();
  TokenMask mask(NumMaskWords(vocabulary_.vocab_size));
  std::vector<int32_t> allowed;
  Answer answer;
  for (int step = 0; step < max_tokens; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    state->FillMask(mask);
    const double mask_us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    ++answer.num_masks;
    answer.masks_us += mask_us;
    answer.slowest_mask_us = std::max(answer.slowest_mask_us, mask_us);
    allowed.clear();
    // Now and then any token, or a pattern may never end.
    const bool is_soft = step >= soft_tokens && random() % 64 != 0;
    int best = kNeverRank + 1;
    for (size_t word = 0; word < mask.size(); ++word) {
      for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
        const auto id = static_cast<int32_t>(word * 32) + std::countr_zero(bits);
        if (id >= vocabulary_.vocab_size) {
          answer.problem = "a token beyond the vocabulary is allowed";
          return answer;
        }
        const int rank = is_soft ? ranks_[static_cast<size_t>(id)] : 0;
        if (rank > best) continue;
        if (rank < best) allowed.clear();
        best = rank;
        allowed.push_back(id);
      }
    }
    if (allowed.empty()) {
      answer.problem = "no token is allowed";
      return answer;
    }
    const int32_t token = allowed[random() % allowed.size()];
    if (!state->Accept(token)) {
      answer.problem = "a token that was allowed is not accepted";
      return answer;
    }
    if (state->ended()) {
      answer.has_ended = true;
      return answer;
    }
    answer.text += vocabulary_.tokens[static_cast<size_t>(token)];
  }
  return answer;
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
