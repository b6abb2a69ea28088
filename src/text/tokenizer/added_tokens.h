// Tokens that are found in the text as they are spelled, before anything is split.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/provenance.h"
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

// Whether the token is structure that no content may make: special, or spelled <|...|> with plain or
// full-width bars. Published files call some such tokens plain ("<\uFF5CUser\uFF5C>", which begins a turn),
// so that they are decoded. Other plain tokens ("<think>", "<tool_call>", runs of spaces) are text that
// models write and clients send back.
bool IsControlToken(const AddedToken& token);

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

  bool empty() const { return tokens_.empty(); }

  // Appends the segments of text in order. include_special: also the special tokens. Control tokens are found
  // only where every byte is the template's: for them a text ends at the first byte of content.
  void Split(std::string_view text, bool include_special, const Provenance& provenance,
             std::vector<TextSegment>* segments) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // sorted by byte
    int32_t token = -1;                                 // index into tokens_
  };

  int32_t Child(int32_t node, uint8_t byte) const;
  // Index into tokens_ of the longest token at text[pos], -1 if none; its bytes in *length. Control tokens
  // end by control_end.
  int32_t LongestAt(std::string_view text, size_t pos, size_t control_end, size_t* length) const;

  std::vector<AddedToken> tokens_;
  std::vector<bool> is_control_;  // by index into tokens_
  std::vector<Node> nodes_;
  std::vector<bool> starts_token_;  // by byte
  SplitRegex word_;                 // one word character
};

}  // namespace tandem
