#include "text/tokenizer/token_decoder.h"

#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/split_regex.h"
#include "text/tokenizer/typed_json.h"

namespace tandem {
namespace {

// "<0xNN>"
std::optional<char> ParseByteToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace

class TokenDecoder::Stream : public DecodeStream {
 public:
  Stream(const TokenDecoder* decoder, const std::vector<bool>* skipped)
      : decoder_(decoder), skipped_(skipped) {}

  void Append(int32_t token_id, std::string* text) final {
    if (!decoder_->Has(token_id) || (skipped_ != nullptr && (*skipped_)[token_id])) return;
    AppendToken(token_id, text);
  }
  void Flush(std::string* /*text*/) override {}

 protected:
  virtual void AppendToken(int32_t token_id, std::string* text) = 0;

  const TokenDecoder* decoder_;

 private:
  const std::vector<bool>* skipped_;
};

// Bytes of all tokens are one stream, whose invalid parts are replaced.
class TokenDecoder::ByteLevelStream : public Stream {
 public:
  using Stream::Stream;

  void AppendToken(int32_t token_id, std::string* text) override {
    const std::string& bytes = decoder_->bytes_[token_id];
    if (pending_.empty()) {
      const size_t used = AppendCompleteUtf8(bytes, text);
      pending_.assign(bytes, used);
    } else {
      pending_ += bytes;
      pending_.erase(0, AppendCompleteUtf8(pending_, text));
    }
  }

  void Flush(std::string* text) override {
    if (!pending_.empty()) text->append(kReplacementCharacter);
    pending_.clear();
  }

 private:
  std::string pending_;  // begin of a character
};

// A run of byte tokens is text if all of it is valid UTF-8, else one U+FFFD for each byte: so a run is held
// back until it ends.
class TokenDecoder::SentencePieceStream : public Stream {
 public:
  SentencePieceStream(const TokenDecoder* decoder, const std::vector<bool>* skipped)
      : Stream(decoder, skipped), num_to_strip_(decoder->spec_.max_stripped) {}

  void AppendToken(int32_t token_id, std::string* text) override {
    if (decoder_->is_byte_[token_id]) {
      run_ += decoder_->bytes_[token_id];
      return;
    }
    EndRun(text);
    Emit(decoder_->bytes_[token_id], text);
  }

  void Flush(std::string* text) override { EndRun(text); }

 private:
  void EndRun(std::string* text) {
    if (run_.empty()) return;
    if (IsValidUtf8(run_)) {
      Emit(run_, text);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) Emit(kReplacementCharacter, text);
    }
    run_.clear();
  }

  void Emit(std::string_view part, std::string* text) {
    const std::string& stripped = decoder_->spec_.stripped_character;
    while (num_to_strip_ > 0 && part.starts_with(stripped)) {
      part.remove_prefix(stripped.size());
      --num_to_strip_;
    }
    if (!part.empty()) num_to_strip_ = 0;
    text->append(part);
  }

  size_t num_to_strip_;
  std::string run_;
};

// Every token has its text, which may depend on whether it is the first.
class TokenDecoder::PlainStream : public Stream {
 public:
  using Stream::Stream;

  void AppendToken(int32_t token_id, std::string* text) override {
    if (decoder_->spec_.kind == DecoderSpec::Kind::kMetaspace) {
      text->append(at_start_ ? decoder_->first_bytes_[token_id] : decoder_->bytes_[token_id]);
    } else {
      if (!at_start_) text->push_back(' ');
      text->append(decoder_->bytes_[token_id]);
    }
    at_start_ = false;
  }

 private:
  bool at_start_ = true;
};

TokenDecoder::TokenDecoder(DecoderSpec spec, const std::vector<std::string>& tokens)
    : spec_(std::move(spec)) {
  const size_t count = tokens.size();
  exists_.resize(count);
  is_byte_.resize(count);
  bytes_.resize(count);
  if (spec_.kind == DecoderSpec::Kind::kMetaspace) first_bytes_.resize(count);
  for (size_t id = 0; id < count; ++id) {
    const std::string& token = tokens[id];
    exists_[id] = !token.empty();
    switch (spec_.kind) {
      case DecoderSpec::Kind::kByteLevel:
        bytes_[id] = BytesFromAlphabet(token).value_or(token);
        break;
      case DecoderSpec::Kind::kSentencePiece: {
        bytes_[id] = token;
        for (const auto& [pattern, content] : spec_.replacements)
          bytes_[id] = SplitRegex::Literal(pattern).ReplaceAll(std::move(bytes_[id]), content);
        const auto byte = spec_.byte_fallback ? ParseByteToken(bytes_[id]) : std::nullopt;
        is_byte_[id] = byte.has_value();
        if (byte) bytes_[id].assign(1, *byte);
        break;
      }
      case DecoderSpec::Kind::kMetaspace:
        bytes_[id] = SplitRegex::Literal(spec_.mark).ReplaceAll(token, " ");
        first_bytes_[id] =
            spec_.drops_first ? SplitRegex::Literal(spec_.mark).ReplaceAll(token, "") : bytes_[id];
        break;
      case DecoderSpec::Kind::kJoinedBySpaces:
        bytes_[id] = token;
        break;
    }
  }
}

std::unique_ptr<DecodeStream> TokenDecoder::NewStream(const std::vector<bool>* skipped) const {
  if (spec_.kind == DecoderSpec::Kind::kByteLevel) return std::make_unique<ByteLevelStream>(this, skipped);
  if (spec_.kind == DecoderSpec::Kind::kSentencePiece)
    return std::make_unique<SentencePieceStream>(this, skipped);
  return std::make_unique<PlainStream>(this, skipped);
}

std::string_view TokenDecoder::Bytes(int32_t id) const {
  return Has(id) ? std::string_view(bytes_[id]) : std::string_view();
}

bool TokenDecoder::strips_leading_space() const {
  return (spec_.kind == DecoderSpec::Kind::kMetaspace && spec_.drops_first) ||
         (spec_.max_stripped > 0 && spec_.stripped_character == " ");
}

DecoderSpec DecoderSpec::SentencePiece(bool strips_space) {
  DecoderSpec spec;
  spec.kind = Kind::kSentencePiece;
  spec.replacements = {{std::string(kSpaceMark), " "}};
  spec.byte_fallback = true;
  spec.stripped_character.push_back(' ');
  spec.max_stripped = strips_space ? 1 : 0;
  return spec;
}

namespace {

Status Flatten(const nlohmann::json& spec, int depth, std::vector<const nlohmann::json*>* steps) {
  if (depth > kMaxNesting) return MakeError(ErrorCode::kMalformedFile, "decoders are nested too deeply");
  TANDEM_ASSIGN_OR_RETURN(const std::string_view type, GetStringField(spec, "type"));
  if (type != "Sequence") {
    steps->push_back(&spec);
    return {};
  }
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json* list, GetArrayField(spec, "decoders"));
  for (const nlohmann::json& step : *list) TANDEM_RETURN_IF_ERROR(Flatten(step, depth + 1, steps));
  return {};
}

Status ReadStrip(const nlohmann::json& step, DecoderSpec* decoder) {
  TANDEM_ASSIGN_OR_RETURN(decoder->stripped_character, GetStringField(step, "content"));
  TANDEM_ASSIGN_OR_RETURN(const int32_t start, GetIdField(step, "start"));
  TANDEM_ASSIGN_OR_RETURN(const int32_t stop, GetIdField(step, "stop"));
  if (stop != 0) return MakeError(ErrorCode::kUnsupported, "decoder Strip with \"stop\" {}", stop);
  if (decoder->stripped_character.empty() ||
      Utf8Length(decoder->stripped_character[0]) != decoder->stripped_character.size())
    return MakeError(ErrorCode::kMalformedFile, "field \"content\" of decoder Strip is not one character");
  decoder->max_stripped = static_cast<size_t>(start);
  return {};
}

Result<DecoderSpec> ReadMetaspace(const nlohmann::json& step) {
  DecoderSpec decoder;
  decoder.kind = DecoderSpec::Kind::kMetaspace;
  TANDEM_ASSIGN_OR_RETURN(decoder.mark, GetStringField(step, "replacement"));
  if (decoder.mark.empty())
    return MakeError(ErrorCode::kMalformedFile, "field \"replacement\" is an empty string");
  if (step.contains("prepend_scheme")) {
    TANDEM_ASSIGN_OR_RETURN(const std::string_view scheme, GetStringField(step, "prepend_scheme"));
    decoder.drops_first = scheme != "never";
  } else {
    TANDEM_ASSIGN_OR_RETURN(decoder.drops_first, GetBoolField(step, "add_prefix_space", true));
  }
  return decoder;
}

}  // namespace

Result<DecoderSpec> DecoderSpec::FromJson(const nlohmann::json& spec) {
  DecoderSpec decoder;
  std::vector<const nlohmann::json*> steps;
  if (!spec.is_null()) TANDEM_RETURN_IF_ERROR(Flatten(spec, 0, &steps));
  if (steps.empty()) {
    decoder.kind = Kind::kJoinedBySpaces;
    return decoder;
  }
  decoder.kind = Kind::kSentencePiece;
  bool fused = false;
  for (const nlohmann::json* step : steps) {
    TANDEM_ASSIGN_OR_RETURN(const std::string_view type, GetStringField(*step, "type"));
    if (type == "ByteLevel" && steps.size() == 1) {
      decoder.kind = Kind::kByteLevel;
    } else if (type == "Metaspace" && steps.size() == 1) {
      return ReadMetaspace(*step);
    } else if (type == "Replace" && !decoder.byte_fallback && !fused) {
      TANDEM_ASSIGN_OR_RETURN(const nlohmann::json* pattern, GetField(*step, "pattern"));
      TANDEM_ASSIGN_OR_RETURN(const std::string_view literal, GetStringField(*pattern, "String"));
      TANDEM_ASSIGN_OR_RETURN(const std::string_view content, GetStringField(*step, "content"));
      if (literal.empty()) return MakeError(ErrorCode::kMalformedFile, "decoder Replace of an empty string");
      decoder.replacements.emplace_back(literal, content);
    } else if (type == "ByteFallback" && !fused) {
      decoder.byte_fallback = true;
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip" && fused && decoder.max_stripped == 0) {
      TANDEM_RETURN_IF_ERROR(ReadStrip(*step, &decoder));
    } else {
      return MakeError(ErrorCode::kUnsupported, "decoder \"{}\" is not supported at its place", type);
    }
  }
  return decoder;
}

}  // namespace tandem
