// The one implementation of Tokenizer: the loaders differ only in how they fill TokenizerParts.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_decoder.h"
#include "text/tokenizer/tokenizer_config.h"

namespace tandem {

struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel::Vocabulary vocabulary;  // valid UTF-8
  BpeModel::Merges merges;
  BpeOptions options;                    // byte_level is taken from pre_tokenizer
  std::vector<AddedToken> added_tokens;  // the first of a content wins
  DecoderSpec decoder;
  // Added by Encode in front of and behind the text's tokens.
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> eos_token_id;
};

// Adds the config's tokens, BOS and EOS to the parts.
void ApplyTokenizerConfig(const TokenizerConfig& config, TokenizerParts* parts);

class BpeTokenizer : public Tokenizer {
 public:
  // Errors: kMalformedFile.
  static Result<std::unique_ptr<Tokenizer>> Create(TokenizerParts parts);
  // Of the parts that were read from a file, which errors then name.
  static Result<std::unique_ptr<Tokenizer>> Create(const std::string& path, Result<TokenizerParts> parts);

  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens,
                              bool parse_special_tokens) const override;
  std::vector<int32_t> Encode(std::string_view text, const Provenance& provenance,
                              bool add_special_tokens) const override;
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  std::unique_ptr<DecodeStream> NewDecodeStream(bool skip_special_tokens) const override;
  std::string TokenBytes(int32_t id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  bool IsSpecial(int32_t id) const override;
  bool IsControl(int32_t id) const override;
  std::optional<int32_t> TokenToId(std::string_view token) const override;
  std::optional<int32_t> bos_token_id() const override { return bos_token_id_; }
  std::optional<int32_t> eos_token_id() const override { return eos_token_id_; }
  std::string bos_token() const override { return TokenText(bos_token_id_); }
  std::string eos_token() const override { return TokenText(eos_token_id_); }
  bool strips_leading_space() const override { return decoder_.strips_leading_space(); }

 private:
  // What one Encode call works with; kept between calls for its caches.
  struct Scratch {
    BpeScratch bpe;
    std::deque<std::string> storage;
    std::vector<std::string_view> pieces;
    std::vector<TextSegment> segments;
    std::vector<TextSegment> normalized_segments;
  };

  // spellings: tokens, those of normalized added tokens normalized.
  BpeTokenizer(TokenizerParts parts, BpeModel model, std::vector<std::string> tokens,
               const std::vector<std::string>& spellings);
  // text: valid UTF-8.
  std::vector<int32_t> EncodeValid(std::string_view text, const Provenance& provenance,
                                   bool add_special_tokens, bool parse_special_tokens) const;
  // text: a part without tokens of raw_matcher_.
  void EncodeText(std::string_view text, Provenance provenance, bool at_text_start, bool parse_special_tokens,
                  Scratch* scratch, std::vector<int32_t>* ids) const;
  // What unknown characters become is no structure.
  bool IsMadeControl(int32_t id) const { return control_[id] && id != unknown_id_; }
  // Takes apart the control tokens from ids[first] on.
  void TakeControlTokensApart(size_t first, Scratch* scratch, std::vector<int32_t>* ids) const;
  std::string TokenText(std::optional<int32_t> id) const { return id ? tokens_[*id] : std::string(); }
  std::unique_ptr<Scratch> TakeScratch() const;
  void ReturnScratch(std::unique_ptr<Scratch> scratch) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  std::vector<std::string> tokens_;  // by id, as the vocabulary spells them
  StringMap<int32_t> id_of_token_;
  std::vector<bool> special_;  // by id
  std::vector<bool> control_;  // by id
  // Whether text can become a control token without being found as one: where the vocabulary has it, merges
  // may end in it.
  bool merges_make_control_ = false;
  // By id: what Decode skips. Hugging Face looks a token up by its normalized content, so that a special
  // token which normalization changes is not skipped.
  std::vector<bool> skipped_;
  AddedTokenMatcher raw_matcher_;
  AddedTokenMatcher normalized_matcher_;
  TokenDecoder decoder_;
  std::vector<int32_t> prefix_ids_;
  std::vector<int32_t> suffix_ids_;
  std::optional<int32_t> bos_token_id_;
  std::optional<int32_t> eos_token_id_;
  std::optional<int32_t> unknown_id_;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_scratches_;  // guarded by mutex_
};

}  // namespace tandem
