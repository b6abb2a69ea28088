#include "text/tokenizer/sentencepiece_model.h"

#include <bit>
#include <utility>

#include "base/utf8.h"

namespace tandem {
namespace {

enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Field numbers of sentencepiece_model.proto.
constexpr uint32_t kModelPieces = 1;
constexpr uint32_t kModelTrainerSpec = 2;
constexpr uint32_t kPieceText = 1;
constexpr uint32_t kPieceScore = 2;
constexpr uint32_t kPieceType = 3;
constexpr uint32_t kTrainerModelType = 3;
constexpr uint32_t kTrainerByteFallback = 35;

struct Field {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;      // kVarint, kFixed32, kFixed64
  std::string_view bytes;  // kBytes
};

// Reads the fields of one message.
class MessageReader {
 public:
  // base: offset of the message in the file, for messages.
  MessageReader(std::string_view message, size_t base) : message_(message), base_(base) {}

  bool AtEnd() const { return pos_ == message_.size(); }
  size_t offset() const { return base_ + pos_; }

  Result<Field> Next() {
    Field field;
    TANDEM_ASSIGN_OR_RETURN(const uint64_t key, Varint());
    field.number = static_cast<uint32_t>(key >> 3);
    field.type = static_cast<WireType>(key & 7U);
    if (key >> 32 != 0 || field.number == 0) return Malformed("an invalid field key");
    switch (field.type) {
      case WireType::kVarint: {
        TANDEM_ASSIGN_OR_RETURN(field.value, Varint());
        return field;
      }
      case WireType::kFixed64:
      case WireType::kFixed32: {
        const size_t size = field.type == WireType::kFixed64 ? 8 : 4;
        if (message_.size() - pos_ < size) return Malformed("a truncated number");
        for (size_t i = 0; i < size; ++i)
          field.value |= static_cast<uint64_t>(static_cast<uint8_t>(message_[pos_ + i])) << (8 * i);
        pos_ += size;
        return field;
      }
      case WireType::kBytes: {
        TANDEM_ASSIGN_OR_RETURN(const uint64_t size, Varint());
        if (size > message_.size() - pos_) return Malformed("a field that is longer than its message");
        field.bytes = message_.substr(pos_, size);
        pos_ += size;
        return field;
      }
    }
    return Malformed("an invalid wire type");
  }

 private:
  Error Malformed(std::string_view what) const {
    return MakeError(ErrorCode::kMalformedFile, "{} near byte {}: no SentencePiece model, or a damaged one",
                     what, offset());
  }

  Result<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (pos_ == message_.size()) return Malformed("a truncated number");
      const auto byte = static_cast<uint8_t>(message_[pos_++]);
      value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) return value;
    }
    return Malformed("a number of more than 64 bits");
  }

  std::string_view message_;
  size_t base_;
  size_t pos_ = 0;
};

Error WrongField(std::string_view field, size_t offset) {
  return MakeError(ErrorCode::kMalformedFile, "{} has a wrong type or value near byte {}", field, offset);
}

Result<SentencePiece> ParsePiece(std::string_view message, size_t base) {
  SentencePiece piece;
  MessageReader reader(message, base);
  while (!reader.AtEnd()) {
    TANDEM_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number == kPieceText) {
      if (field.type != WireType::kBytes || !IsValidUtf8(field.bytes))
        return WrongField("a piece's text", reader.offset());
      piece.text = std::string(field.bytes);
    } else if (field.number == kPieceScore) {
      if (field.type != WireType::kFixed32) return WrongField("a piece's score", reader.offset());
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    } else if (field.number == kPieceType) {
      if (field.type != WireType::kVarint || field.value < 1 || field.value > 6)
        return WrongField("a piece's type", reader.offset());
      piece.type = static_cast<PieceType>(field.value);
    }
  }
  return piece;
}

Status ParseTrainerSpec(std::string_view message, size_t base, SentencePieceModel* model) {
  MessageReader reader(message, base);
  while (!reader.AtEnd()) {
    TANDEM_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number == kTrainerModelType) {
      if (field.type != WireType::kVarint || field.value < 1 || field.value > 4)
        return WrongField("the model type", reader.offset());
      model->model_type = static_cast<int>(field.value);
    } else if (field.number == kTrainerByteFallback) {
      if (field.type != WireType::kVarint) return WrongField("byte_fallback", reader.offset());
      model->byte_fallback = field.value != 0;
    }
  }
  return {};
}

}  // namespace

Result<SentencePieceModel> SentencePieceModel::Parse(std::string_view bytes) {
  SentencePieceModel model;
  MessageReader reader(bytes, 0);
  while (!reader.AtEnd()) {
    TANDEM_ASSIGN_OR_RETURN(const Field field, reader.Next());
    const size_t base = reader.offset() - field.bytes.size();
    if (field.number == kModelPieces) {
      if (field.type != WireType::kBytes) return WrongField("a piece", reader.offset());
      TANDEM_ASSIGN_OR_RETURN(SentencePiece piece, ParsePiece(field.bytes, base));
      model.pieces.push_back(std::move(piece));
    } else if (field.number == kModelTrainerSpec) {
      if (field.type != WireType::kBytes) return WrongField("the trainer spec", reader.offset());
      TANDEM_RETURN_IF_ERROR(ParseTrainerSpec(field.bytes, base, &model));
    }
  }
  if (model.pieces.empty()) return MakeError(ErrorCode::kMalformedFile, "the model has no pieces");
  return model;
}

}  // namespace tandem
