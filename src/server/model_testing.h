// A real byte-level tokenizer and chat template for this folder's tests: one token a byte, then special
// tokens.
#pragma once

#include <memory>
#include <string>

#include "server/generation_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// Token ids: the 256 bytes in the order of byte-level BPE's alphabet, then kEndOfText.
class TestModel {
 public:
  static constexpr int32_t kEndOfText = 256;
  static constexpr int64_t kVocabSize = 257;
  static constexpr int64_t kMaxModelLen = 64;

  TestModel();
  const ModelContext& context() const { return context_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::vector<int32_t> Encode(const std::string& text) const { return tokenizer_->Encode(text, false); }
  // The token of one byte.
  int32_t Byte(unsigned char byte) const;

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
  ModelContext context_;
};

// One for all tests that change nothing in it.
const TestModel& SharedTestModel();

}  // namespace tandem
