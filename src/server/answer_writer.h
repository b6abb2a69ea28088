// An answer in the form of one API: OpenAI's completions and chats, its Responses, Anthropic's Messages.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/completion_stream.h"
#include "server/generation_request.h"
#include "server/openai_response.h"
#include "text/tokenizer.h"

namespace tandem {

// Io thread only. Of one request: either the stream's methods are called, in their order, or Body.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // Each returns events for the connection, framed (sse.h); may be empty.

  virtual std::string BeginStream() = 0;
  // Any of the request's sequences has gone on; has_tokens: by tokens, whose text may still be held back. The
  // last one of a sequence has delta.finished.
  virtual std::string Delta(size_t choice_index, const CompletionStream::Delta& delta,
                            const CompletionStream& stream, bool has_tokens) = 0;
  virtual std::string EndStream(const Usage& usage) = 0;
  // Ends the stream early.
  virtual std::string FailStream(const ApiError& error) = 0;

  // A whole answer. choices and streams: of each sequence.
  virtual std::string Body(const std::vector<Choice>& choices, const std::vector<CompletionStream>& streams,
                           const Usage& usage) = 0;
};

// All outlive the writer.
struct AnswerWriterContext {
  const GenerationRequest& request;
  const Tokenizer& tokenizer;
  const ResponseIdentity& identity;
};

}  // namespace tandem
