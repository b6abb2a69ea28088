#include "text/incremental_detokenizer.h"

namespace tandem {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer* tokenizer, bool skip_special_tokens)
    : stream_(tokenizer->NewDecodeStream(skip_special_tokens)) {}

std::string IncrementalDetokenizer::Append(int32_t token_id) {
  std::string text;
  stream_->Append(token_id, &text);
  return text;
}

std::string IncrementalDetokenizer::Flush() {
  std::string text;
  stream_->Flush(&text);
  return text;
}

}  // namespace tandem
