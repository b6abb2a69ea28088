// Tokens that are found in the text as they are spelled, before anything is split.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/split_regex.h"

namespace tandem {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // skipped by Decode on request
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool single_word = false;  // not next to a word character
  bool normalized = false;   // looked for in the normalized text
};

// A part of a text: an added token, or the text between two of them.
struct TextSegment {
  int32_t id = -1;  // -1: text
  size_t begin = 0;
  size_t end = 0;
};

// Finds added tokens, leftmost first, longest first. Immutable once built; any thread.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher();

  // spelling: what to look for (the content, normalized if the token is). Ignored if empty; the first token
  // of a spelling wins.
  void Add(const AddedToken& token, std::string_view spelling);

  // Appends the segments of text in order. include_special: also the special tokens.
  void Split(std::string_view text, bool include_special, std::vector<TextSegment>* segments) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // sorted by byte
    int32_t token = -1;                                 // index into tokens_
  };

  int32_t Child(int32_t node, uint8_t byte) const;
  // Index into tokens_ of the longest token at text[pos], -1 if none; its bytes in *length.
  int32_t LongestAt(std::string_view text, size_t pos, size_t* length) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<bool> starts_token_;  // by byte
  SplitRegex word_;                 // one word character
};

}  // namespace tandem
