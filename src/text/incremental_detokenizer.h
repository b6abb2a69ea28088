// Turns a stream of token ids into a stream of text that never splits a UTF-8 character.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace tandem {

// One per sequence; not thread-safe. The concatenation of all Append() results and Flush() equals
// Tokenizer::Decode of all ids with the same skip_special_tokens.
//
// A SentencePiece tokenizer's run of byte tokens shows up once it has ended: whether it is text or a row of
// U+FFFD is only known then.
class IncrementalDetokenizer {
 public:
  // tokenizer outlives this object.
  IncrementalDetokenizer(const Tokenizer* tokenizer, bool skip_special_tokens);

  // The text that became certain with this token; empty while a character is incomplete.
  std::string Append(int32_t token_id);
  // What is left at the end of the sequence (an incomplete character becomes U+FFFD).
  std::string Flush();

 private:
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace tandem
