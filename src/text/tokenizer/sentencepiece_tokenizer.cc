// Tokenizer::FromSentencePiece.
#include <utility>

#include "load/json_fields.h"
#include "text/tokenizer/bpe_tokenizer.h"
#include "text/tokenizer/sentencepiece_merges.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/typed_json.h"

namespace tandem {
namespace {

Result<TokenizerParts> ReadModel(std::string_view bytes, TokenizerConfig config) {
  TANDEM_ASSIGN_OR_RETURN(const SentencePieceModel model, SentencePieceModel::Parse(bytes));
  if (model.model_type != SentencePieceModel::kBpe)
    return MakeError(ErrorCode::kUnsupported, "SentencePiece model type {}: only BPE is supported",
                     model.model_type);
  TokenizerParts parts;
  parts.vocabulary.reserve(model.pieces.size());
  for (size_t id = 0; id < model.pieces.size(); ++id)
    parts.vocabulary.emplace_back(model.pieces[id].text, static_cast<int32_t>(id));
  TANDEM_ASSIGN_OR_RETURN(parts.merges, MergesFromVocabulary(parts.vocabulary, {}));
  parts.options.byte_fallback = true;
  parts.options.fuse_unknown = true;

  // Llama's defaults.
  if (!config.bos_token) config.bos_token = "<s>";
  if (!config.eos_token) config.eos_token = "</s>";
  if (!config.unk_token) config.unk_token = "<unk>";
  if (!config.add_bos_token) config.add_bos_token = true;
  for (const auto& token : {config.unk_token, config.bos_token, config.eos_token})
    config.special_tokens.push_back({.content = *token, .special = true});
  // The config knows the flags of a token (lstrip, ...); the model only that it is one.
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.type != PieceType::kControl && piece.type != PieceType::kUserDefined) continue;
    config.added_tokens.push_back({.id = static_cast<int32_t>(id),
                                   .content = piece.text,
                                   .special = piece.type == PieceType::kControl});
  }
  ApplyTokenizerConfig(config, &parts);

  const bool prefix_space = config.add_prefix_space.value_or(true);
  using Prepend = PreTokenizer::Prepend;
  const Prepend prepend = config.legacy.value_or(false) ? Prepend::kAlways : Prepend::kFirst;
  parts.pre_tokenizer = PreTokenizer::Metaspace(prefix_space ? prepend : Prepend::kNever);
  parts.decoder = DecoderSpec::SentencePiece(/*strips_space=*/prefix_space);
  return parts;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromSentencePiece(const std::string& model_path,
                                                                const std::string& tokenizer_config) {
  TANDEM_ASSIGN_OR_RETURN(const TokenizerConfig config, TokenizerConfig::Read(tokenizer_config));
  TANDEM_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(model_path, kMaxTokenizerFileBytes));
  return BpeTokenizer::Create(model_path, ReadModel(bytes, config));
}

}  // namespace tandem
