#include "text/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/byte_alphabet.h"

namespace tandem {
namespace {

// Ids index arrays; no published vocabulary comes near this.
constexpr int32_t kMaxTokenId = (1 << 24) - 1;

Status CheckId(int32_t id, std::string_view token) {
  if (id >= 0 && id <= kMaxTokenId) return {};
  return MakeError(ErrorCode::kMalformedFile, "token \"{}\" has the id {}, which is out of range", token, id);
}

}  // namespace

void ApplyTokenizerConfig(const TokenizerConfig& config, TokenizerParts* parts) {
  StringMap<int32_t> id_of_token;
  for (const auto& [token, id] : parts->vocabulary) id_of_token.insert_or_assign(token, id);
  std::unordered_set<std::string> added;
  std::unordered_set<int32_t> used_ids;
  for (const AddedToken& token : parts->added_tokens) {
    id_of_token.insert_or_assign(token.content, token.id);
    added.insert(token.content);
  }
  for (const auto& [token, id] : id_of_token) used_ids.insert(id);

  for (const AddedToken& token : config.added_tokens) {
    AddedToken known = token;
    if (const auto it = id_of_token.find(token.content); it != id_of_token.end()) {
      known.id = it->second;
    } else if (used_ids.contains(token.id)) {
      continue;
    }
    if (!added.insert(known.content).second) continue;
    id_of_token.insert_or_assign(known.content, known.id);
    used_ids.insert(known.id);
    parts->added_tokens.push_back(std::move(known));
  }
  for (const AddedToken& token : config.special_tokens) {
    const auto it = id_of_token.find(token.content);
    if (it == id_of_token.end() || !added.insert(token.content).second) continue;
    AddedToken known = token;
    known.id = it->second;
    parts->added_tokens.push_back(std::move(known));
  }

  const auto find = [&](const std::optional<std::string>& token) -> std::optional<int32_t> {
    if (!token) return std::nullopt;
    const auto it = id_of_token.find(*token);
    return it == id_of_token.end() ? std::nullopt : std::optional(it->second);
  };
  if (config.bos_token) parts->bos_token_id = find(config.bos_token);
  if (config.eos_token) parts->eos_token_id = find(config.eos_token);
  if (config.add_bos_token || config.add_eos_token) {
    // Explicit flags replace what the tokenizer's own file says.
    parts->prefix_ids.clear();
    parts->suffix_ids.clear();
    if (config.add_bos_token.value_or(false) && parts->bos_token_id)
      parts->prefix_ids.push_back(*parts->bos_token_id);
    if (config.add_eos_token.value_or(false) && parts->eos_token_id)
      parts->suffix_ids.push_back(*parts->eos_token_id);
  }
}

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(TokenizerParts parts) {
  parts.options.byte_level = parts.pre_tokenizer.byte_level();
  std::vector<std::string> tokens;
  const auto place = [&tokens](const std::string& token, int32_t id) -> Status {
    TANDEM_RETURN_IF_ERROR(CheckId(id, token));
    if (!IsValidUtf8(token))
      return MakeError(ErrorCode::kMalformedFile, "the text of token {} is not valid UTF-8", id);
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    tokens[id] = token;
    return {};
  };
  for (const auto& [token, id] : parts.vocabulary) TANDEM_RETURN_IF_ERROR(place(token, id));
  // Of tokens with the same content the first counts, and what is in the vocabulary keeps its id.
  StringMap<int32_t> id_of_vocabulary;
  for (const auto& [token, id] : parts.vocabulary) id_of_vocabulary.insert_or_assign(token, id);
  std::unordered_set<std::string> contents;
  std::erase_if(parts.added_tokens, [&](const AddedToken& token) {
    return token.content.empty() || !contents.insert(token.content).second;
  });
  for (AddedToken& token : parts.added_tokens) {
    if (const auto it = id_of_vocabulary.find(token.content); it != id_of_vocabulary.end())
      token.id = it->second;
    TANDEM_RETURN_IF_ERROR(place(token.content, token.id));
  }
  if (tokens.empty()) return MakeError(ErrorCode::kMalformedFile, "the vocabulary is empty");
  const auto check_exists = [&tokens](int32_t id) -> Status {
    if (id >= 0 && static_cast<size_t>(id) < tokens.size()) return {};
    return MakeError(ErrorCode::kMalformedFile, "token id {} is outside the vocabulary of {}", id,
                     tokens.size());
  };
  for (const auto* list : {&parts.prefix_ids, &parts.suffix_ids})
    for (const int32_t id : *list) TANDEM_RETURN_IF_ERROR(check_exists(id));
  for (const auto& id : {parts.bos_token_id, parts.eos_token_id, parts.options.unknown_id})
    if (id) TANDEM_RETURN_IF_ERROR(check_exists(*id));
  TANDEM_ASSIGN_OR_RETURN(BpeModel model, BpeModel::Create(parts.vocabulary, parts.merges, parts.options));
  std::vector<std::string> spellings = tokens;
  for (const AddedToken& token : parts.added_tokens)
    if (token.normalized) parts.normalizer.Apply(&spellings[token.id]);
  return std::unique_ptr<Tokenizer>(
      new BpeTokenizer(std::move(parts), std::move(model), std::move(tokens), spellings));
}

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(const std::string& path,
                                                        Result<TokenizerParts> parts) {
  auto tokenizer = parts.ok() ? Create(*std::move(parts)) : parts.error();
  if (tokenizer.ok()) return tokenizer;
  return MakeError(tokenizer.error().code, "{}: {}", path, tokenizer.error().message);
}

BpeTokenizer::BpeTokenizer(TokenizerParts parts, BpeModel model, std::vector<std::string> tokens,
                           const std::vector<std::string>& spellings)
    : normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      model_(std::move(model)),
      tokens_(std::move(tokens)),
      special_(tokens_.size(), false),
      control_(tokens_.size(), false),
      skipped_(tokens_.size(), false),
      decoder_(std::move(parts.decoder), spellings),
      prefix_ids_(std::move(parts.prefix_ids)),
      suffix_ids_(std::move(parts.suffix_ids)),
      bos_token_id_(parts.bos_token_id),
      eos_token_id_(parts.eos_token_id),
      unknown_id_(parts.options.unknown_id) {
  for (const auto& [token, id] : parts.vocabulary) id_of_token_.insert_or_assign(token, id);
  for (const AddedToken& token : parts.added_tokens) {
    id_of_token_.insert_or_assign(token.content, token.id);
    const std::string& spelling = spellings[token.id];
    special_[token.id] = token.special;
    control_[token.id] = IsControlToken(token);
    skipped_[token.id] = token.special && spelling == token.content;
    if (token.normalized) {
      normalized_matcher_.Add(token, spelling);
    } else {
      raw_matcher_.Add(token, token.content);
    }
  }
  const std::vector<bool> reachable = model_.ReachableIds(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (reachable[id] && IsMadeControl(static_cast<int32_t>(id))) merges_make_control_ = true;
  }
}

std::unique_ptr<BpeTokenizer::Scratch> BpeTokenizer::TakeScratch() const {
  const std::lock_guard lock(mutex_);
  if (idle_scratches_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(idle_scratches_.back());
  idle_scratches_.pop_back();
  return scratch;
}

void BpeTokenizer::ReturnScratch(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  idle_scratches_.push_back(std::move(scratch));
}

std::vector<int32_t> BpeTokenizer::Encode(std::string_view text, bool add_special_tokens,
                                          bool parse_special_tokens) const {
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = ReplaceInvalidUtf8(text);
    text = repaired;
  }
  return EncodeValid(text, Provenance(), add_special_tokens, parse_special_tokens);
}

std::vector<int32_t> BpeTokenizer::Encode(std::string_view text, const Provenance& provenance,
                                          bool add_special_tokens) const {
  if (IsValidUtf8(text)) return EncodeValid(text, provenance, add_special_tokens, true);
  Alignment alignment;
  const std::string repaired = ReplaceInvalidUtf8(text, &alignment);
  return EncodeValid(repaired, provenance.Through(alignment), add_special_tokens, true);
}

std::vector<int32_t> BpeTokenizer::EncodeValid(std::string_view text, const Provenance& provenance,
                                               bool add_special_tokens, bool parse_special_tokens) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  if (add_special_tokens) ids = prefix_ids_;
  std::unique_ptr<Scratch> scratch = TakeScratch();
  scratch->segments.clear();
  raw_matcher_.Split(text, parse_special_tokens, provenance, &scratch->segments);
  for (const TextSegment& segment : scratch->segments) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else {
      EncodeText(text.substr(segment.begin, segment.end - segment.begin),
                 provenance.Slice(segment.begin, segment.end), segment.begin == 0, parse_special_tokens,
                 scratch.get(), &ids);
    }
  }
  ReturnScratch(std::move(scratch));
  if (add_special_tokens) ids.insert(ids.end(), suffix_ids_.begin(), suffix_ids_.end());
  return ids;
}

void BpeTokenizer::EncodeText(std::string_view text, Provenance provenance, bool at_text_start,
                              bool parse_special_tokens, Scratch* scratch, std::vector<int32_t>* ids) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    normalized = text;
    if (normalized_matcher_.empty()) {
      normalizer_.Apply(&normalized);  // nobody asks which character is whose
    } else {
      normalizer_.Apply(&normalized, &provenance);
    }
    text = normalized;
  }
  scratch->normalized_segments.clear();
  normalized_matcher_.Split(text, parse_special_tokens, provenance, &scratch->normalized_segments);
  for (const TextSegment& segment : scratch->normalized_segments) {
    if (segment.id >= 0) {
      ids->push_back(segment.id);
      continue;
    }
    scratch->storage.clear();
    scratch->pieces.clear();
    pre_tokenizer_.Split(text.substr(segment.begin, segment.end - segment.begin),
                         at_text_start && segment.begin == 0, &scratch->storage, &scratch->pieces);
    const size_t first = ids->size();
    for (const std::string_view piece : scratch->pieces) model_.Encode(piece, &scratch->bpe, ids);
    if (merges_make_control_ && provenance.Of(segment.begin, segment.end) == Source::kContent) {
      TakeControlTokensApart(first, scratch, ids);
    }
  }
}

void BpeTokenizer::TakeControlTokensApart(size_t first, Scratch* scratch, std::vector<int32_t>* ids) const {
  const auto is_made = [this](int32_t id) { return IsMadeControl(id); };
  const auto begin = ids->begin() + static_cast<ptrdiff_t>(first);
  if (std::none_of(begin, ids->end(), is_made)) return;
  const std::vector<int32_t> whole(begin, ids->end());
  ids->resize(first);
  for (const int32_t id : whole) {
    std::string spelling = tokens_[id];
    if (pre_tokenizer_.byte_level()) spelling = BytesFromAlphabet(spelling).value_or("");
    const size_t head = pre_tokenizer_.byte_level() || spelling.empty() ? 1 : Utf8Length(spelling[0]);
    if (!is_made(id) || spelling.size() <= head) {
      ids->push_back(id);
      continue;
    }
    for (const std::string_view part :
         {std::string_view(spelling).substr(0, head), std::string_view(spelling).substr(head)}) {
      const size_t part_first = ids->size();
      model_.Encode(part, &scratch->bpe, ids);
      TakeControlTokensApart(part_first, scratch, ids);
    }
  }
}

std::string BpeTokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  const std::unique_ptr<DecodeStream> stream = NewDecodeStream(skip_special_tokens);
  for (const int32_t id : ids) stream->Append(id, &text);
  stream->Flush(&text);
  return text;
}

std::unique_ptr<DecodeStream> BpeTokenizer::NewDecodeStream(bool skip_special_tokens) const {
  return decoder_.NewStream(skip_special_tokens ? &skipped_ : nullptr);
}

std::string BpeTokenizer::TokenBytes(int32_t id) const {
  return std::string(IsSpecial(id) ? std::string_view(tokens_[id]) : decoder_.Bytes(id));
}

bool BpeTokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < special_.size() && special_[id];
}

bool BpeTokenizer::IsControl(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < control_.size() && control_[id];
}

std::optional<int32_t> BpeTokenizer::TokenToId(std::string_view token) const {
  const auto it = id_of_token_.find(token);
  return it == id_of_token_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace tandem
