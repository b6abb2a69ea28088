// Text and calls of any format, while they stream. What a format is like is its CallSyntax.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_parser.h"
#include "dialect/call_syntax.h"

namespace tandem {

class CallParser : public AnswerParser {
 public:
  // syntax: null if there are no calls to look for.
  explicit CallParser(std::unique_ptr<CallSyntax> syntax);
  void Append(std::string_view text, std::vector<AnswerPart>* parts) override;
  void Finish(std::vector<AnswerPart>* parts) override;

 private:
  enum class State {
    kText,       // looking for a call
    kArguments,  // of a call that has begun
    kTail,       // what ends a call after its arguments
    kBlock,      // where the next call of a block may be
  };

  void Run(bool is_final, std::vector<AnswerPart>* parts);
  // False: nothing more is certain before more text comes.
  bool Step(bool is_final, std::vector<AnswerPart>* parts);
  bool StepText(bool is_final, std::vector<AnswerPart>* parts);
  bool StepArguments(bool is_final, std::vector<AnswerPart>* parts);
  bool StepTail(bool is_final);
  bool StepBlock(bool is_final, std::vector<AnswerPart>* parts);

  bool Begin(CallHead head, std::vector<AnswerPart>* parts);
  void EmitText(size_t bytes, std::vector<AnswerPart>* parts);
  std::string_view Rest() const { return std::string_view(pending_).substr(begin_); }
  void Advance(size_t bytes);
  // Whether to look again at what was not decided before, and to wait after it was not.
  bool IsWorthALook(bool is_final) const { return is_final || Rest().size() >= look_again_bytes_; }
  bool WaitForMore();

  const std::unique_ptr<CallSyntax> syntax_;
  std::unique_ptr<ArgumentsReader> arguments_;
  State state_ = State::kText;
  std::string pending_;  // from begin_ on: not decided yet
  size_t begin_ = 0;
  size_t look_again_bytes_ = 0;
  size_t first_new_part_ = 0;  // those before it are of earlier calls of Append
  bool at_start_ = true;       // nothing but white space has come
  bool after_call_ = false;    // nothing but white space has come since a call
  bool is_object_ = false;     // of the call at hand
};

}  // namespace tandem
