// What the tests of answers share: an answer fed in pieces, and its parts with pieces of one kind joined.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_parser.h"

namespace tandem {

inline std::string_view PartKindName(AnswerPart::Kind kind) {
  switch (kind) {
    case AnswerPart::Kind::kText:
      return "text";
    case AnswerPart::Kind::kReasoning:
      return "reasoning";
    case AnswerPart::Kind::kCallBegin:
      return "call";
    case AnswerPart::Kind::kCallArguments:
      return "arguments";
    case AnswerPart::Kind::kCallEnd:
      return "end";
  }
  return "";
}

// One line a part: "text: Hello", "call: f", "arguments: {}", "end". Neighbouring pieces of a kind are
// joined.
inline std::string Describe(const std::vector<AnswerPart>& parts) {
  std::string lines;
  const AnswerPart* before = nullptr;
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kCallEnd) {
      lines += "\nend";
    } else if (before != nullptr && before->kind == part.kind && part.kind != AnswerPart::Kind::kCallBegin) {
      lines += part.text;
    } else {
      lines += "\n" + std::string(PartKindName(part.kind)) + ": " + part.text;
    }
    before = &part;
  }
  return lines.empty() ? lines : lines.substr(1);
}

inline std::string ParseInPieces(const AnswerParserOptions& options,
                                 const std::vector<std::string_view>& pieces) {
  const auto parser = MakeAnswerParser(options);
  std::vector<AnswerPart> parts;
  for (const std::string_view piece : pieces) parser->Append(piece, &parts);
  parser->Finish(&parts);
  for (const AnswerPart& part : parts) {
    EXPECT_EQ(part.text.empty(), part.kind == AnswerPart::Kind::kCallEnd) << PartKindName(part.kind);
  }
  return Describe(parts);
}

// Whole, byte by byte, and cut in two at every place.
inline void ExpectParts(const AnswerParserOptions& options, std::string_view answer,
                        std::string_view expected) {
  SCOPED_TRACE(answer);
  EXPECT_EQ(ParseInPieces(options, {answer}), expected);
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < answer.size(); ++i) bytes.push_back(answer.substr(i, 1));
  EXPECT_EQ(ParseInPieces(options, bytes), expected) << "byte by byte";
  for (size_t i = 1; i < answer.size(); ++i) {
    EXPECT_EQ(ParseInPieces(options, {answer.substr(0, i), answer.substr(i)}), expected) << "cut at " << i;
  }
}

struct AnswerCase {
  std::string_view answer;
  std::string_view parts;
};

}  // namespace tandem
