// Takes the reasoning off the start of an answer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_parser.h"

namespace tandem {

// Reasoning is what stands between <think> and </think> at the start of an answer; the rest is for `rest`. An
// answer that ends before </think> is all reasoning. White space at the borders of reasoning is dropped.
class ReasoningParser : public AnswerParser {
 public:
  // starts_inside: the answer begins after <think>. One that it begins with nonetheless is dropped.
  ReasoningParser(bool starts_inside, std::unique_ptr<AnswerParser> rest);
  void Append(std::string_view text, std::vector<AnswerPart>* parts) override;
  void Finish(std::vector<AnswerPart>* parts) override;

 private:
  enum class State { kStart, kInside, kAfter };
  void ReadStart(bool is_final, std::vector<AnswerPart>* parts);
  void ReadInside(bool is_final, std::vector<AnswerPart>* parts);
  void ReadAfter(std::vector<AnswerPart>* parts);

  const bool starts_inside_;
  const std::unique_ptr<AnswerParser> rest_;
  State state_ = State::kStart;
  bool at_border_ = true;  // nothing but white space has come since the last marker
  std::string pending_;
};

// Passes on whole UTF-8 characters, so that no part ends within one.
class WholeCharacters : public AnswerParser {
 public:
  explicit WholeCharacters(std::unique_ptr<AnswerParser> rest);
  void Append(std::string_view text, std::vector<AnswerPart>* parts) override;
  void Finish(std::vector<AnswerPart>* parts) override;

 private:
  const std::unique_ptr<AnswerParser> rest_;
  std::string begun_;  // the first bytes of a character
};

}  // namespace tandem
