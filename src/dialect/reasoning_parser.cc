#include "dialect/reasoning_parser.h"

#include <algorithm>
#include <utility>

#include "dialect/scan.h"

namespace tandem {
namespace {

// How many bytes at the end of text are the beginning of a character whose other bytes have not come.
size_t UnfinishedBytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;
    const size_t length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

ReasoningParser::ReasoningParser(bool starts_inside, std::unique_ptr<AnswerParser> rest)
    : starts_inside_(starts_inside), rest_(std::move(rest)) {}

void ReasoningParser::Append(std::string_view text, std::vector<AnswerPart>* parts) {
  pending_.append(text);
  if (state_ == State::kStart) ReadStart(false, parts);
  if (state_ == State::kInside) ReadInside(false, parts);
  if (state_ == State::kAfter) ReadAfter(parts);
}

void ReasoningParser::Finish(std::vector<AnswerPart>* parts) {
  if (state_ == State::kStart) ReadStart(true, parts);
  if (state_ == State::kInside) ReadInside(true, parts);
  if (state_ == State::kAfter) ReadAfter(parts);
  rest_->Finish(parts);
}

void ReasoningParser::ReadStart(bool is_final, std::vector<AnswerPart>* parts) {
  size_t pos = SkipSpace(pending_, 0);
  const Scan scan = ScanMarker(pending_, kThinkBegin, &pos);
  if (scan == Scan::kMore && !is_final) return;
  if (scan == Scan::kDone) pending_.erase(0, pos);
  if (scan == Scan::kDone || starts_inside_) {
    state_ = State::kInside;
    return;
  }
  state_ = State::kAfter;
  at_border_ = false;
  ReadAfter(parts);
}

void ReasoningParser::ReadInside(bool is_final, std::vector<AnswerPart>* parts) {
  if (at_border_) pending_.erase(0, SkipSpace(pending_, 0));
  if (pending_.empty()) return;
  at_border_ = false;
  const size_t found = is_final ? pending_.find(kThinkEnd) : FindMarker(pending_, kThinkEnd);
  const bool ends = found != std::string::npos && pending_.compare(found, kThinkEnd.size(), kThinkEnd) == 0;
  const size_t bytes = TrimmedSize(std::string_view(pending_).substr(0, found));
  if (bytes > 0) parts->push_back({AnswerPart::Kind::kReasoning, pending_.substr(0, bytes)});
  pending_.erase(0, ends ? found + kThinkEnd.size() : bytes);
  if (!ends) return;
  state_ = State::kAfter;
  at_border_ = true;
}

void ReasoningParser::ReadAfter(std::vector<AnswerPart>* parts) {
  if (at_border_) pending_.erase(0, SkipSpace(pending_, 0));
  if (pending_.empty()) return;
  at_border_ = false;
  rest_->Append(std::exchange(pending_, {}), parts);
}

WholeCharacters::WholeCharacters(std::unique_ptr<AnswerParser> rest) : rest_(std::move(rest)) {}

void WholeCharacters::Append(std::string_view text, std::vector<AnswerPart>* parts) {
  begun_.append(text);
  const size_t unfinished = UnfinishedBytes(begun_);
  std::string whole = begun_.substr(0, begun_.size() - unfinished);
  begun_.erase(0, whole.size());
  if (!whole.empty()) rest_->Append(whole, parts);
}

void WholeCharacters::Finish(std::vector<AnswerPart>* parts) {
  if (!begun_.empty()) rest_->Append(std::exchange(begun_, {}), parts);
  rest_->Finish(parts);
}

}  // namespace tandem
