// From token ids back to text, token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem {

// Text of tokens that arrive one by one. One per sequence; not thread-safe.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  // Appends the text that became certain with this token to *text.
  virtual void Append(int32_t token_id, std::string* text) = 0;
  // Appends what only the end of the sequence decides (an incomplete character: U+FFFD).
  virtual void Flush(std::string* text) = 0;
};

// How the tokens of a vocabulary become text.
struct DecoderSpec {
  enum class Kind {
    kByteLevel,      // tokens spell bytes in the byte alphabet
    kSentencePiece,  // replacements in each token, then optionally byte fallback and stripping
    kMetaspace,      // the mark is a space, except in the first token
    kJoinedBySpaces  // no decoder
  };
  Kind kind = Kind::kByteLevel;
  std::vector<std::pair<std::string, std::string>> replacements;  // kSentencePiece
  bool byte_fallback = false;                                     // kSentencePiece: "<0xNN>" are bytes
  std::string stripped_character;                                 // one character, from the start of the text
  size_t max_stripped = 0;
  std::string mark;         // kMetaspace
  bool drops_first = true;  // kMetaspace: no marks in the first token

  // The "decoder" of a tokenizer.json (null, ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip and
  // sequences of these in the order of published tokenizers). Errors: kMalformedFile, kUnsupported.
  static Result<DecoderSpec> FromJson(const nlohmann::json& spec);
  // U+2581 is a space; byte fallback; one space is stripped from the start if strips_space.
  static DecoderSpec SentencePiece(bool strips_space);
};

// Immutable once built; any thread.
class TokenDecoder {
 public:
  // tokens: by id, as the vocabulary spells them (empty: no such id).
  TokenDecoder(DecoderSpec spec, const std::vector<std::string>& tokens);

  // The tokenizer outlives the stream. Ids for which skipped says true yield nothing; skipped may be null.
  std::unique_ptr<DecodeStream> NewStream(const std::vector<bool>* skipped) const;

  // What the token adds in the middle of a text, before invalid UTF-8 is replaced. Empty if there is no such
  // id.
  std::string_view Bytes(int32_t id) const;
  bool strips_leading_space() const;

 private:
  class Stream;
  class ByteLevelStream;
  class SentencePieceStream;
  class PlainStream;

  bool Has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < exists_.size() && exists_[id]; }

  DecoderSpec spec_;
  std::vector<bool> exists_;
  std::vector<std::string> bytes_;        // by id
  std::vector<std::string> first_bytes_;  // by id, kMetaspace: as the first token
  std::vector<bool> is_byte_;             // by id: byte fallback token, whose byte is in bytes_
};

}  // namespace tandem
