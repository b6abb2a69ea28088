// The OpenAI API's answers, whole and in stream chunks.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/completion_stream.h"
#include "server/generation_request.h"
#include "text/tokenizer.h"

namespace tandem {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of prompt_tokens: not computed, since the KV cache had them
};

// Of a request whose prompts have n streams each, one behind the other.
Usage CountUsage(const std::vector<CompletionStream>& streams, int64_t n);

// What every answer and chunk of one request repeats.
struct ResponseIdentity {
  GenerationRequest::Kind kind = GenerationRequest::Kind::kCompletion;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

// How log-probabilities name tokens.
struct TokenNames {
  const Tokenizer* tokenizer;
  bool as_token_ids = false;  // "token_id:5" instead of the text

  std::string Of(int32_t token) const;
};

// A call of a tool that the model wrote.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, as the model wrote it
};

struct Choice {
  std::string text;       // of a chat: without reasoning and calls
  std::string reasoning;  // of a chat
  std::vector<ToolCall> tool_calls;
  std::vector<int32_t> token_ids;
  std::vector<TokenRecord> records;

  // What a delta adds.
  void Append(CompletionStream::Delta delta);
};

// That of the stream, or "tool_calls".
std::string_view FinishReasonOf(const CompletionStream& stream);

// answer_id, else "cmpl-..." or "chatcmpl-...", with the request's own id or a new one.
std::string ResponseId(const GenerationRequest& request);

// logprobs objects: {"tokens", "token_logprobs", "top_logprobs", "text_offset"} and {"content": [...]}.
nlohmann::ordered_json CompletionLogprobs(const TokenNames& names, const std::vector<TokenRecord>& records,
                                          int32_t num_logprobs);
nlohmann::ordered_json ChatLogprobs(const TokenNames& names, const std::vector<TokenRecord>& records,
                                    int32_t num_logprobs);
// vLLM's prompt_logprobs: for each token of the prompt an object by token id of {"logprob", "rank",
// "decoded_token"}, null for the first. sampled: of the tokens behind the first; num_top of the best.
nlohmann::ordered_json PromptLogprobs(const TokenNames& names, const std::vector<SampledToken>& sampled,
                                      int32_t num_top);

// The body of a plain answer; one stream for each choice.
std::string ResponseBody(const ResponseIdentity& identity, const Tokenizer& tokenizer,
                         const GenerationRequest& request, const std::vector<Choice>& choices,
                         const std::vector<CompletionStream>& streams, const Usage& usage);

// JSON of stream chunks; see sse.h for their frame.
class ChunkWriter {
 public:
  ChunkWriter(const ResponseIdentity& identity, const Tokenizer* tokenizer, const GenerationRequest* request);
  // Chat only: announces the role of a choice.
  std::string Role(size_t choice_index, const CompletionStream& stream) const;
  // stream: for finish_reason; it is null in chunks of unfinished streams.
  std::string Delta(size_t choice_index, const CompletionStream::Delta& delta,
                    const CompletionStream& stream) const;
  std::string FinalUsage(const Usage& usage) const;

 private:
  static std::string PromptTokenIds(const CompletionStream& stream);
  std::string Close(std::string chunk) const;
  std::string CloseWithUsage(std::string chunk, const CompletionStream& stream) const;

  bool is_chat_;
  std::string prefix_;  // up to the choice's index
  std::string head_;    // up to "choices":
  const Tokenizer* tokenizer_;
  const GenerationRequest* request_;
};

}  // namespace tandem
