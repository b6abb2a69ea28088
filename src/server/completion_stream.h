// One sequence's way from tokens to text: detokenization, stop strings, log-probabilities, why it ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_parser.h"
#include "request/request_output.h"
#include "server/generation_request.h"
#include "text/incremental_detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace tandem {

// A token of the answer (or of the echoed prompt) for a logprobs object.
struct TokenRecord {
  int32_t token = 0;
  std::optional<float> logprob;  // the first token of a prompt has none
  std::vector<TokenLogprob> top_logprobs;
  int64_t text_offset = 0;  // in code points, from the start of the choice's text
};

// Not thread-safe. The concatenation of all Delta::text is the answer's text.
class CompletionStream {
 public:
  // What one engine output adds. Text and records come together: a record is never later than the first
  // character behind its own text, and records of text that a stop string cut off never come.
  struct Delta {
    std::string text;
    // The same taken apart, if it is a chat's: text, reasoning and calls of tools. A part may come later than
    // its text. call_ids: of each kCallBegin among them.
    std::vector<AnswerPart> parts;
    std::vector<std::string> call_ids;
    std::vector<TokenRecord> records;
    std::vector<int32_t> token_ids;  // all that were drawn; only where the request wants them
    bool is_first = false;           // of the sequence's
    bool finished = false;
    // A stop string ended the sequence: the engine does not know yet and must be told.
    bool cancel_in_engine = false;
  };

  // Both outlive the stream.
  CompletionStream(const Tokenizer* tokenizer, const GenerationRequest* request, size_t prompt_index);

  Delta Append(const RequestOutput& output);

  bool finished() const { return finished_; }
  // "stop" or "length" once finished; empty if it ended otherwise (cancelled, failed).
  std::string_view finish_reason() const { return finish_reason_; }
  // Calls of tools that have begun.
  int64_t num_calls() const { return num_calls_; }
  // What stopped it, if not EOS: a stop string or a stop token.
  const std::optional<std::string>& stop_string() const { return stop_string_; }
  const std::optional<int32_t>& stop_token() const { return stop_token_; }
  // Of the prompt's tokens but the first, as far as the engine has sent them.
  const std::vector<SampledToken>& prompt_logprobs() const { return prompt_logprobs_; }
  const std::vector<int32_t>& prompt_tokens() const { return prompt_->tokens; }
  int64_t num_prompt_tokens() const { return static_cast<int64_t>(prompt_->tokens.size()); }
  // Of the prompt's tokens, that were not computed for it; 0 until the engine has sent something.
  int64_t num_cached_tokens() const { return num_cached_tokens_; }
  int64_t num_output_tokens() const { return request_->discard_output ? 0 : num_tokens_; }

 private:
  void AppendEcho(Delta* delta);
  void AppendToken(const SampledToken& token, Delta* delta);
  void AppendText(std::string text, Delta* delta);
  void Finish(const RequestOutput& output, Delta* delta);
  void ReleaseRecords(bool all, Delta* delta);
  bool IsShown(int32_t token) const;
  // What the text from `begin` on adds to the parts.
  void Parse(size_t begin, Delta* delta);

  const Tokenizer* tokenizer_;
  const GenerationRequest* request_;
  const GenerationRequest::Prompt* prompt_;
  IncrementalDetokenizer detokenizer_;
  StopStringMatcher stop_matcher_;
  std::unique_ptr<AnswerParser> parser_;  // of a chat
  int64_t num_calls_ = 0;
  std::vector<SampledToken> prompt_logprobs_;
  std::vector<TokenRecord> pending_records_;
  bool echoed_ = false;
  bool finished_ = false;
  std::string_view finish_reason_;
  std::optional<std::string> stop_string_;
  std::optional<int32_t> stop_token_;
  int64_t num_cached_tokens_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_decoded_code_points_ = 0;  // of the text before the stop strings are looked for
  int64_t num_shown_code_points_ = 0;
};

}  // namespace tandem
