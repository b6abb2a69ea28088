// Tokenizer: text <-> token ids, equal to Hugging Face's tokenizers for the supported kinds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "text/tokenizer/token_decoder.h"

namespace tandem {

// Immutable after loading; every method may be called from any thread.
class Tokenizer {
 public:
  // tokenizer_json: path of a Hugging Face tokenizer.json; tokenizer_config: path of tokenizer_config.json or
  // empty.
  static Result<std::unique_ptr<Tokenizer>> FromTokenizerJson(const std::string& tokenizer_json,
                                                              const std::string& tokenizer_config);
  // A SentencePiece BPE model with byte fallback (tokenizer.model), as Llama 2's and TinyLlama's.
  static Result<std::unique_ptr<Tokenizer>> FromSentencePiece(const std::string& model_path,
                                                              const std::string& tokenizer_config);
  // The vocabulary inside a GGUF file (tokenizer.ggml.*).
  static Result<std::unique_ptr<Tokenizer>> FromGguf(const std::string& gguf_path);

  virtual ~Tokenizer() = default;

  // text: bytes; invalid UTF-8 is replaced by U+FFFD as Hugging Face does.
  // add_special_tokens: what the post-processor adds (BOS). Special tokens spelled out in the text
  // ("<|im_start|>") are recognized when parse_special_tokens, plain text otherwise.
  virtual std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens,
                                      bool parse_special_tokens = true) const = 0;

  // The same for a text that holds content: special tokens are recognized, but no token of which a byte is
  // content may be a control token (IsControl). The ids of a text without such tokens in its content are
  // those of Encode(text): everything else goes over the borders of content, words and merges too.
  virtual std::vector<int32_t> Encode(std::string_view text, const Provenance& provenance,
                                      bool add_special_tokens) const = 0;

  // The text of a whole sequence; bytes that are no valid UTF-8 become U+FFFD as Hugging Face's decode does.
  // Ids outside the vocabulary yield nothing.
  virtual std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const = 0;

  // The same, token by token: the texts of all Append() and Flush() together equal Decode. The tokenizer
  // outlives the stream.
  virtual std::unique_ptr<DecodeStream> NewDecodeStream(bool skip_special_tokens) const = 0;

  // The raw bytes a token adds in the middle of a text (a leading SentencePiece space mark is a space); they
  // may be part of a UTF-8 character. Special tokens: their content.
  virtual std::string TokenBytes(int32_t id) const = 0;

  // One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // Whether the token is structure (turns, tools, ends), by tokenizer/added_tokens.h: special, or spelled
  // like it.
  virtual bool IsControl(int32_t id) const = 0;
  virtual std::optional<int32_t> TokenToId(std::string_view token) const = 0;
  virtual std::optional<int32_t> bos_token_id() const = 0;
  virtual std::optional<int32_t> eos_token_id() const = 0;
  // Text of BOS and EOS for chat templates, empty if none.
  virtual std::string bos_token() const = 0;
  virtual std::string eos_token() const = 0;
  // Whether the decoder strips one leading space of the whole text (SentencePiece's dummy prefix).
  virtual bool strips_leading_space() const = 0;
};

}  // namespace tandem
