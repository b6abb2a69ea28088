#include "text/tokenizer/byte_tokenizer.h"

#include <string>
#include <string_view>
#include <utility>

#include "text/tokenizer/bpe_tokenizer.h"
#include "text/tokenizer/byte_alphabet.h"

namespace tandem {
namespace {

constexpr int64_t kNumBytes = 256;
constexpr int64_t kMaxVocabSize = int64_t{1} << 24;

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeByteTokenizer(int64_t vocab_size) {
  if (vocab_size < kNumBytes || vocab_size > kMaxVocabSize) {
    return MakeError(ErrorCode::kInvalidArgument, "a byte tokenizer has {} to {} tokens, not {}", kNumBytes,
                     kMaxVocabSize, vocab_size);
  }
  TokenizerParts parts;
  TANDEM_ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::ByteLevelWithPatterns({}));
  parts.vocabulary.reserve(static_cast<size_t>(vocab_size));
  for (int64_t id = 0; id < vocab_size; ++id) {
    const std::string bytes =
        id < kNumBytes ? std::string(1, static_cast<char>(id)) : fmt::format("<{}>", id);
    parts.vocabulary.emplace_back(BytesToAlphabet(bytes), static_cast<int32_t>(id));
  }
  parts.decoder.kind = DecoderSpec::Kind::kByteLevel;
  return BpeTokenizer::Create(std::move(parts));
}

}  // namespace tandem
