// What a trace says of a request for tokens or embeddings: a span of the server, and below it the phases of
// each sequence.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "request/request_output.h"
#include "server/api_error.h"
#include "server/embedding_request.h"
#include "server/generation_request.h"
#include "server/http_message.h"
#include "server/openai_response.h"
#include "tracing/tracer.h"

namespace tandem {

// Told what happens to a request, and sends its spans at the first of Finish, Fail and Abort; what comes
// later is not heard. Copies are of the same request. One made without a trace does nothing. One thread at a
// time.
class RequestTrace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Send = std::function<void(std::vector<Span> spans)>;

  RequestTrace() = default;
  // start: nothing where the request is not recorded.
  RequestTrace(std::optional<TraceStart> start, const HttpRequest& request, Send send);
  // By the headers of the request. tracer outlives the trace; null: none is recorded.
  static RequestTrace Begin(Tracer* tracer, const HttpRequest& request);

  // What is asked for, once it is known.
  void Accept(const GenerationRequest& request, const ResponseIdentity& identity) const;
  void Accept(const EmbeddingRequest& request, const std::string& model) const;
  // Of the sequence of a choice, or of an input. time: when it came.
  void OnOutput(size_t choice_index, const RequestOutput& output, TimePoint time) const;
  // num_tokens: as usage counts them.
  void EndSequence(size_t choice_index, std::string_view reason, int64_t num_tokens) const;

  // Of all prompts together, not computed since the KV cache had them.
  void SetCachedTokens(int64_t num_tokens) const;

  // All sequences have ended by then.
  void Finish() const;
  void Fail(const ApiError& error) const;
  // The client is gone.
  void Abort() const;

 private:
  struct Recording;
  std::shared_ptr<Recording> recording_;  // null: nothing is recorded
};

// Prometheus text of the spans that were sent and that were not.
std::string RenderTraceMetrics(const OtlpCounts& counts);

}  // namespace tandem
