// Tokenizer::FromGguf.
#include <array>
#include <utility>

#include "load/gguf_file.h"
#include "text/tokenizer/bpe_tokenizer.h"
#include "text/tokenizer/sentencepiece_merges.h"
#include "text/tokenizer/sentencepiece_model.h"

namespace tandem {
namespace {

constexpr std::string_view kSingleNumbers = R"(\p{N})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What a value of tokenizer.ggml.pre stands for.
struct PreTokenizerKind {
  std::string_view name;
  std::array<std::string_view, 2> patterns;  // in turn; empty: none
  bool nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;  // unless tokenizer.ggml.add_bos_token says otherwise
};

constexpr PreTokenizerKind kPreTokenizers[] = {
    {"default", {kGpt2Pattern}},
    {"gpt-2", {kGpt2Pattern}},
    {"smollm", {kSingleNumbers, kGpt2Pattern}},
    {"llama-bpe", {kLlama3}, false, true, true},
    {"llama3", {kLlama3}, false, true, true},
    {"llama-v3", {kLlama3}, false, true, true},
    {"qwen2", {kQwen2}, true},
    {"deepseek-r1-qwen", {kQwen2}, true},
    {"tekken", {kTekken}, false, true, true},
};

Result<PreTokenizerKind> FindPreTokenizer(std::string_view name) {
  for (const PreTokenizerKind& kind : kPreTokenizers)
    if (kind.name == name) return kind;
  return MakeError(ErrorCode::kUnsupported, "tokenizer.ggml.pre \"{}\" is not supported", name);
}

Status ReadVocabulary(const GgufFile& file, TokenizerParts* parts) {
  TANDEM_ASSIGN_OR_RETURN(const auto tokens, file.GetStringArray("tokenizer.ggml.tokens"));
  if (tokens.empty()) return MakeError(ErrorCode::kMalformedFile, "tokenizer.ggml.tokens is empty");
  parts->vocabulary.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id)
    parts->vocabulary.emplace_back(tokens[id], static_cast<int32_t>(id));
  if (!file.Has("tokenizer.ggml.token_type")) return {};
  TANDEM_ASSIGN_OR_RETURN(const auto types, file.GetInt32Array("tokenizer.ggml.token_type"));
  if (types.size() != tokens.size())
    return MakeError(ErrorCode::kMalformedFile, "tokenizer.ggml.token_type has {} entries for {} tokens",
                     types.size(), tokens.size());
  for (size_t id = 0; id < types.size(); ++id) {
    const auto type = static_cast<PieceType>(types[id]);
    if (type != PieceType::kControl && type != PieceType::kUserDefined) continue;
    parts->added_tokens.push_back({.id = static_cast<int32_t>(id),
                                   .content = std::string(tokens[id]),
                                   .special = type == PieceType::kControl});
  }
  return {};
}

Status ReadMerges(const GgufFile& file, TokenizerParts* parts) {
  TANDEM_ASSIGN_OR_RETURN(const auto merges, file.GetStringArray("tokenizer.ggml.merges"));
  parts->merges.reserve(merges.size());
  for (const std::string_view merge : merges) {
    // A token may begin with a space in SentencePiece vocabularies, never end with one.
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos)
      return MakeError(ErrorCode::kMalformedFile, "tokenizer.ggml.merges: \"{}\" is not two tokens", merge);
    parts->merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

// A token id, or none if the key is missing.
Result<std::optional<int32_t>> ReadTokenId(const GgufFile& file, std::string_view key, size_t vocab_size) {
  if (!file.Has(key)) return std::optional<int32_t>();
  TANDEM_ASSIGN_OR_RETURN(const int64_t id, file.GetInt(key));
  if (id < 0 || static_cast<size_t>(id) >= vocab_size)
    return MakeError(ErrorCode::kMalformedFile, "{} is {}, outside the vocabulary of {}", key, id,
                     vocab_size);
  return std::optional(static_cast<int32_t>(id));
}

Result<bool> ReadByteLevel(const GgufFile& file, TokenizerParts* parts) {
  TANDEM_ASSIGN_OR_RETURN(const std::string_view pre, file.GetStringOr("tokenizer.ggml.pre", "default"));
  TANDEM_ASSIGN_OR_RETURN(const PreTokenizerKind kind, FindPreTokenizer(pre));
  std::vector<std::string_view> patterns;
  for (const std::string_view pattern : kind.patterns)
    if (!pattern.empty()) patterns.push_back(pattern);
  TANDEM_ASSIGN_OR_RETURN(parts->pre_tokenizer, PreTokenizer::ByteLevelWithPatterns(patterns));
  if (kind.nfc) parts->normalizer = Normalizer::Nfc();
  parts->options.ignore_merges = kind.ignore_merges;
  parts->decoder.kind = DecoderSpec::Kind::kByteLevel;
  TANDEM_RETURN_IF_ERROR(ReadMerges(file, parts));
  return kind.adds_bos;
}

Status ReadSentencePiece(const GgufFile& file, TokenizerParts* parts) {
  if (file.Has("tokenizer.ggml.merges")) {
    TANDEM_RETURN_IF_ERROR(ReadMerges(file, parts));
  } else {
    TANDEM_ASSIGN_OR_RETURN(const auto scores, file.GetFloatArray("tokenizer.ggml.scores"));
    if (scores.size() != parts->vocabulary.size())
      return MakeError(ErrorCode::kMalformedFile, "tokenizer.ggml.scores has {} entries for {} tokens",
                       scores.size(), parts->vocabulary.size());
    TANDEM_ASSIGN_OR_RETURN(parts->merges, MergesFromVocabulary(parts->vocabulary, scores));
  }
  TANDEM_ASSIGN_OR_RETURN(const bool prefix_space, file.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
  parts->pre_tokenizer =
      PreTokenizer::Metaspace(prefix_space ? PreTokenizer::Prepend::kFirst : PreTokenizer::Prepend::kNever);
  parts->decoder = DecoderSpec::SentencePiece(/*strips_space=*/prefix_space);
  parts->options.byte_fallback = true;
  parts->options.fuse_unknown = true;
  // Special, unless the file says that they are user-defined.
  for (const auto& [token, id] : parts->vocabulary) {
    if (token == "<unk>" || token == "<s>" || token == "</s>")
      parts->added_tokens.push_back({.id = id, .content = token, .special = true});
  }
  return {};
}

Result<TokenizerParts> ReadGguf(const GgufFile& file) {
  TokenizerParts parts;
  TANDEM_ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  TANDEM_RETURN_IF_ERROR(ReadVocabulary(file, &parts));
  bool adds_bos = true;
  if (model == "gpt2") {
    TANDEM_ASSIGN_OR_RETURN(adds_bos, ReadByteLevel(file, &parts));
  } else if (model == "llama") {
    TANDEM_RETURN_IF_ERROR(ReadSentencePiece(file, &parts));
  } else {
    return MakeError(ErrorCode::kUnsupported, "tokenizer.ggml.model \"{}\" is not supported (gpt2, llama)",
                     model);
  }
  const size_t vocab_size = parts.vocabulary.size();
  TANDEM_ASSIGN_OR_RETURN(parts.bos_token_id, ReadTokenId(file, "tokenizer.ggml.bos_token_id", vocab_size));
  TANDEM_ASSIGN_OR_RETURN(parts.eos_token_id, ReadTokenId(file, "tokenizer.ggml.eos_token_id", vocab_size));
  for (const auto& id : {parts.bos_token_id, parts.eos_token_id}) {
    if (id)
      parts.added_tokens.push_back({.id = *id, .content = parts.vocabulary[*id].first, .special = true});
  }
  TANDEM_ASSIGN_OR_RETURN(adds_bos, file.GetBoolOr("tokenizer.ggml.add_bos_token", adds_bos));
  TANDEM_ASSIGN_OR_RETURN(const bool adds_eos, file.GetBoolOr("tokenizer.ggml.add_eos_token", false));
  if (adds_bos && parts.bos_token_id) parts.prefix_ids.push_back(*parts.bos_token_id);
  if (adds_eos && parts.eos_token_id) parts.suffix_ids.push_back(*parts.eos_token_id);
  return parts;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const std::string& gguf_path) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(gguf_path));
  return BpeTokenizer::Create(gguf_path, ReadGguf(*file));
}

}  // namespace tandem
