#include "server/completion_stream.h"

#include <algorithm>
#include <utility>

#include "server/json_text.h"
#include "server/new_ids.h"

namespace tandem {

CompletionStream::CompletionStream(const Tokenizer* tokenizer, const GenerationRequest* request,
                                   size_t prompt_index)
    : tokenizer_(tokenizer),
      request_(request),
      prompt_(&request->prompts[prompt_index]),
      detokenizer_(tokenizer, request->skip_special_tokens && request->shown_special_tokens.empty()),
      stop_matcher_(request->stop) {
  if (request->kind == GenerationRequest::Kind::kChat) parser_ = MakeAnswerParser(request->parser);
}

CompletionStream::Delta CompletionStream::Append(const RequestOutput& output) {
  Delta delta;
  if (finished_) return delta;
  num_cached_tokens_ = output.num_cached_tokens;
  delta.is_first = num_tokens_ == 0 && !output.tokens.empty();
  prompt_logprobs_.insert(prompt_logprobs_.end(), output.prompt_logprobs.begin(),
                          output.prompt_logprobs.end());
  const bool failed =
      output.finish_reason == FinishReason::kCancelled || output.finish_reason == FinishReason::kError;
  if (request_->echo && !echoed_ && !failed && !output.tokens.empty()) AppendEcho(&delta);
  const size_t echo_bytes = delta.text.size();
  for (size_t i = 0; i < output.tokens.size() && !finished_; ++i) {
    ++num_tokens_;
    if (request_->discard_output) continue;
    if (request_->return_token_ids) delta.token_ids.push_back(output.tokens[i].token);
    // The token that ends the sequence is not part of the answer.
    const bool ends = output.finish_reason == FinishReason::kStop && i + 1 == output.tokens.size();
    if (ends && !request_->include_stop_str_in_output) continue;
    AppendToken(output.tokens[i], &delta);
  }
  if (!finished_ && output.finish_reason != FinishReason::kNone) Finish(output, &delta);
  Parse(echo_bytes, &delta);
  delta.finished = finished_;
  ReleaseRecords(finished_, &delta);
  return delta;
}

void CompletionStream::Parse(size_t begin, Delta* delta) {
  if (parser_ == nullptr) {
    if (!delta->text.empty()) delta->parts.push_back({AnswerPart::Kind::kText, delta->text});
    return;
  }
  if (begin > 0) delta->parts.push_back({AnswerPart::Kind::kText, delta->text.substr(0, begin)});
  if (begin < delta->text.size()) parser_->Append(std::string_view(delta->text).substr(begin), &delta->parts);
  if (finished_) parser_->Finish(&delta->parts);
  for (size_t i = 0; i < delta->parts.size(); ++i) {
    const AnswerPart::Kind kind = delta->parts[i].kind;
    if (kind == AnswerPart::Kind::kCallBegin) {
      ++num_calls_;
      delta->call_ids.push_back(NewCallId(request_->parser.format));
    } else if (kind == AnswerPart::Kind::kCallEnd && request_->one_call) {
      delta->parts.resize(i + 1);
      if (finished_) break;
      finish_reason_ = "stop";
      finished_ = true;
      delta->cancel_in_engine = true;
    }
  }
}

// Skipping them here and not in the detokenizer, which would skip all.
bool CompletionStream::IsShown(int32_t token) const {
  const std::vector<int32_t>& shown = request_->shown_special_tokens;
  if (shown.empty() || !request_->skip_special_tokens || !tokenizer_->IsSpecial(token)) return true;
  return std::find(shown.begin(), shown.end(), token) != shown.end();
}

void CompletionStream::AppendEcho(Delta* delta) {
  echoed_ = true;
  delta->text = prompt_->text;
  num_decoded_code_points_ = num_shown_code_points_ = CountCodePoints(prompt_->text);
  // A chat's log-probabilities are those of the answer alone.
  if (request_->num_logprobs < 0 || request_->kind == GenerationRequest::Kind::kChat) return;
  IncrementalDetokenizer detokenizer(tokenizer_, request_->skip_special_tokens);
  int64_t offset = 0;
  for (size_t i = 0; i < prompt_->tokens.size(); ++i) {
    TokenRecord record;
    record.token = prompt_->tokens[i];
    record.text_offset = offset;
    if (i > 0 && i - 1 < prompt_logprobs_.size()) {
      record.logprob = prompt_logprobs_[i - 1].logprob;
      record.top_logprobs = prompt_logprobs_[i - 1].top_logprobs;
    }
    delta->records.push_back(std::move(record));
    offset += CountCodePoints(detokenizer.Append(prompt_->tokens[i]));
  }
}

void CompletionStream::AppendToken(const SampledToken& token, Delta* delta) {
  if (request_->num_logprobs >= 0) {
    pending_records_.push_back({.token = token.token,
                                .logprob = token.logprob,
                                .top_logprobs = token.top_logprobs,
                                .text_offset = num_decoded_code_points_});
  }
  if (IsShown(token.token)) AppendText(detokenizer_.Append(token.token), delta);
}

void CompletionStream::AppendText(std::string text, Delta* delta) {
  if (text.empty()) return;
  num_decoded_code_points_ += CountCodePoints(text);
  // Like EOS, stop strings do not count before min_tokens have come.
  if (!request_->stop.empty() && num_tokens_ > request_->sampling.min_tokens) {
    StopStringMatcher::Output matched = stop_matcher_.Append(text);
    text = std::move(matched.text);
    if (matched.stopped) {
      if (request_->include_stop_str_in_output) text += matched.matched;
      stop_string_ = std::move(matched.matched);
      finish_reason_ = "stop";
      finished_ = true;
      delta->cancel_in_engine = true;
    }
  }
  num_shown_code_points_ += CountCodePoints(text);
  delta->text += text;
}

void CompletionStream::Finish(const RequestOutput& output, Delta* delta) {
  switch (output.finish_reason) {
    case FinishReason::kStop: {
      finish_reason_ = "stop";
      const auto& stop_ids = request_->sampling.stop_token_ids;
      if (std::find(stop_ids.begin(), stop_ids.end(), output.stop_token_id) != stop_ids.end()) {
        stop_token_ = output.stop_token_id;
      }
      break;
    }
    case FinishReason::kLength:
      finish_reason_ = "length";
      break;
    default:
      finished_ = true;
      return;
  }
  AppendText(detokenizer_.Flush(), delta);
  delta->cancel_in_engine = false;  // it has ended by itself
  if (!stop_string_) {
    const std::string rest = stop_matcher_.Flush();
    num_shown_code_points_ += CountCodePoints(rest);
    delta->text += rest;
  }
  finished_ = true;
}

void CompletionStream::ReleaseRecords(bool all, Delta* delta) {
  size_t num_released = 0;
  for (TokenRecord& record : pending_records_) {
    const bool shown = record.text_offset < num_shown_code_points_;
    if (!shown && (!all || stop_string_.has_value())) break;
    delta->records.push_back(std::move(record));
    ++num_released;
  }
  pending_records_.erase(pending_records_.begin(),
                         pending_records_.begin() + static_cast<std::ptrdiff_t>(num_released));
}

}  // namespace tandem
