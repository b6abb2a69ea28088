// One request for tokens, of whatever API, from submission to its last byte.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/answer_writer.h"
#include "server/completion_stream.h"
#include "server/generation_request.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "server/openai_response.h"
#include "server/output_queue.h"
#include "server/request_trace.h"

namespace tandem {

// Io thread only. Whoever owns it drops it once done().
class Generation {
 public:
  struct Environment {
    Engine* engine;
    ServerMetrics* metrics;
    std::shared_ptr<OutputQueue> outputs;
    std::string served_model_name;
    RequestTrace trace;
  };

  Generation(uint64_t id, Environment environment, GenerationRequest request,
             std::shared_ptr<HttpExchange> exchange, std::chrono::steady_clock::time_point arrival);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Submits all sequences. If one is refused, the others are cancelled and the client gets the error.
  void Start();
  void OnOutput(size_t choice_index, const RequestOutput& output, std::chrono::steady_clock::time_point time);
  // The client is gone, maybe before Start: cancels every unfinished sequence.
  void Abort();

  bool done() const { return done_; }
  uint64_t id() const { return id_; }

 private:
  struct Sequence {
    RequestId request_id = 0;  // 0: not submitted
    size_t prompt_index = 0;
    bool ended = false;
    std::optional<std::chrono::steady_clock::time_point> first_scheduled;
    std::optional<std::chrono::steady_clock::time_point> first_token;
    std::optional<std::chrono::steady_clock::time_point> last_token;
  };

  struct PromptProgress {
    int64_t num_unended = 0;  // of its n sequences
    int64_t max_generation_tokens = 0;
  };

  std::optional<Error> SubmitAll();
  // num_tokens: those of the output that count as generated.
  void ObserveTokens(Sequence* sequence, const RequestOutput& output, int64_t num_tokens,
                     std::chrono::steady_clock::time_point time);
  void EndSequence(size_t choice_index, std::string_view reason);
  // Drops what is empty: an event of nothing would end the stream.
  void Send(const std::string& events);
  void NameIgnoredFields(HttpResponse* response) const;
  void Fail(const ApiError& error);
  void FinishIfComplete();
  void CancelUnfinished(std::string_view reason);
  Usage ReportUsage();  // to the access log and the trace

  uint64_t id_;
  Environment environment_;
  GenerationRequest request_;
  std::shared_ptr<HttpExchange> exchange_;
  std::chrono::steady_clock::time_point arrival_;
  ResponseIdentity identity_;
  std::unique_ptr<AnswerWriter> writer_;
  std::vector<Sequence> sequences_;
  std::vector<PromptProgress> prompts_;  // of request_.prompts
  std::vector<CompletionStream> streams_;
  std::vector<Choice> choices_;  // only of a plain answer
  size_t num_ended_ = 0;
  bool done_ = false;
};

}  // namespace tandem
