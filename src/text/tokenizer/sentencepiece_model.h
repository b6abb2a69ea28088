// The SentencePiece model file: a protocol buffer with the pieces and how they were trained.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem {

// Piece types, as stored; GGUF files store the same numbers as token types.
enum class PieceType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct SentencePiece {
  std::string text;
  float score = 0.0F;
  PieceType type = PieceType::kNormal;
};

struct SentencePieceModel {
  static constexpr int kUnigram = 1;
  static constexpr int kBpe = 2;

  std::vector<SentencePiece> pieces;  // by id
  int model_type = kUnigram;
  bool byte_fallback = false;

  // Errors: kMalformedFile with the byte offset.
  static Result<SentencePieceModel> Parse(std::string_view bytes);
};

}  // namespace tandem
