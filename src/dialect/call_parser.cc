#include "dialect/call_parser.h"

#include <utility>

namespace tandem {

CallParser::CallParser(std::unique_ptr<CallSyntax> syntax) : syntax_(std::move(syntax)) {}

void CallParser::Append(std::string_view text, std::vector<AnswerPart>* parts) {
  if (text.empty()) return;
  pending_.append(text);
  Run(false, parts);
}

void CallParser::Finish(std::vector<AnswerPart>* parts) {
  Run(true, parts);
}

void CallParser::Run(bool is_final, std::vector<AnswerPart>* parts) {
  first_new_part_ = parts->size();
  if (syntax_ == nullptr) {
    EmitText(Rest().size(), parts);
  } else {
    while (Step(is_final, parts)) {
    }
  }
  pending_.erase(0, begin_);
  begin_ = 0;
}

bool CallParser::Step(bool is_final, std::vector<AnswerPart>* parts) {
  switch (state_) {
    case State::kText:
      return StepText(is_final, parts);
    case State::kArguments:
      return StepArguments(is_final, parts);
    case State::kTail:
      return StepTail(is_final);
    case State::kBlock:
      return StepBlock(is_final, parts);
  }
  return false;
}

bool CallParser::StepText(bool is_final, std::vector<AnswerPart>* parts) {
  if (after_call_) {
    Advance(SkipSpace(Rest(), 0));
    after_call_ = Rest().empty();
  }
  if (Rest().empty() || !IsWorthALook(is_final)) return false;
  const size_t found = syntax_->Find(Rest(), at_start_);
  // White space before a call goes with it, so it waits for what follows.
  EmitText(TrimmedSize(Rest().substr(0, found)), parts);
  if (found == std::string_view::npos) {
    if (is_final) EmitText(Rest().size(), parts);
    return false;
  }
  const size_t space = SkipSpace(Rest(), 0);
  CallHead head = syntax_->MatchHead(Rest().substr(space), false);
  if (head.verdict == Scan::kMore && !is_final) return WaitForMore();
  if (head.verdict == Scan::kDone) {
    Advance(space);
    return Begin(std::move(head), parts);
  }
  // Not a call: its first byte is text, and the next may begin one.
  EmitText(space + 1, parts);
  return true;
}

bool CallParser::StepArguments(bool is_final, std::vector<AnswerPart>* parts) {
  size_t used = 0;
  std::string json;
  const auto status = arguments_->Read(Rest(), &used, &json);
  const bool breaks_off = status == ArgumentsReader::Status::kMore && is_final;
  Advance(breaks_off ? Rest().size() : used);
  if (!json.empty()) parts->push_back({AnswerPart::Kind::kCallArguments, std::move(json)});
  if (status == ArgumentsReader::Status::kMore && !is_final) return false;
  parts->push_back({AnswerPart::Kind::kCallEnd, ""});
  state_ = State::kTail;
  return true;
}

bool CallParser::StepTail(bool is_final) {
  if (!IsWorthALook(is_final)) return false;
  const CallTail tail = syntax_->MatchTail(Rest(), is_object_);
  if (tail.needs_more && !is_final) return WaitForMore();
  Advance(tail.used);
  state_ = tail.in_block ? State::kBlock : State::kText;
  after_call_ = true;
  return true;
}

bool CallParser::StepBlock(bool is_final, std::vector<AnswerPart>* parts) {
  if (!IsWorthALook(is_final)) return false;
  CallHead head = syntax_->MatchHead(Rest(), true);
  if (head.verdict == Scan::kMore && !is_final) return WaitForMore();
  if (head.verdict == Scan::kDone) return Begin(std::move(head), parts);
  state_ = State::kText;
  return true;
}

bool CallParser::Begin(CallHead head, std::vector<AnswerPart>* parts) {
  Advance(head.used);
  at_start_ = false;
  is_object_ = head.is_object;
  parts->push_back({AnswerPart::Kind::kCallBegin, std::move(head.name)});
  if (!head.arguments) {
    arguments_ = syntax_->NewArguments();
    state_ = State::kArguments;
    return true;
  }
  parts->push_back({AnswerPart::Kind::kCallArguments, *std::move(head.arguments)});
  parts->push_back({AnswerPart::Kind::kCallEnd, ""});
  state_ = State::kTail;
  return true;
}

void CallParser::EmitText(size_t bytes, std::vector<AnswerPart>* parts) {
  if (bytes == 0) return;
  const std::string_view text = Rest().substr(0, bytes);
  if (SkipSpace(text, 0) < text.size()) at_start_ = false;
  if (parts->size() > first_new_part_ && parts->back().kind == AnswerPart::Kind::kText) {
    parts->back().text.append(text);
  } else {
    parts->push_back({AnswerPart::Kind::kText, std::string(text)});
  }
  Advance(bytes);
}

void CallParser::Advance(size_t bytes) {
  begin_ += bytes;
  if (bytes > 0) look_again_bytes_ = 0;
}

bool CallParser::WaitForMore() {
  // What is held back is looked at from its start. Where that is long, as when arguments stand before the
  // name, looking after every token would take time in the square of its length.
  constexpr size_t kLongBytes = 4096;
  const size_t bytes = Rest().size();
  look_again_bytes_ = bytes < kLongBytes ? 0 : bytes + bytes / 16;
  return false;
}

}  // namespace tandem
