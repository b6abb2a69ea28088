// One request of /v1/embeddings from submission to its answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/embedding_request.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "server/output_queue.h"
#include "server/request_trace.h"

namespace tandem {

// Io thread only. Whoever owns it drops it once done().
class EmbeddingJob {
 public:
  struct Environment {
    Engine* engine;
    ServerMetrics* metrics;
    std::shared_ptr<OutputQueue> outputs;
    std::string served_model_name;
    Pooling pooling;
    RequestTrace trace;
  };

  EmbeddingJob(uint64_t id, Environment environment, EmbeddingRequest request,
               std::shared_ptr<HttpExchange> exchange, std::chrono::steady_clock::time_point arrival);
  EmbeddingJob(const EmbeddingJob&) = delete;
  EmbeddingJob& operator=(const EmbeddingJob&) = delete;

  // Submits the first inputs; the others follow as these end, so that a long list leaves room in the queue.
  void Start() { SubmitMore(); }
  void OnOutput(size_t input, RequestOutput output, std::chrono::steady_clock::time_point time);
  // The client is gone, maybe before Start: cancels what is unfinished.
  void Abort();

  bool done() const { return done_; }

 private:
  struct Input {
    RequestId request_id = 0;  // 0: not submitted
    bool ended = false;
  };

  void SubmitMore();
  std::optional<Error> Submit(size_t input);
  void ObserveEnd(size_t input, std::string_view reason, const RequestOutput* output,
                  std::chrono::steady_clock::time_point time);
  void Fail(const ApiError& error);
  // Ends all that have not, and tells the log.
  void End();
  void Answer();

  uint64_t id_;
  Environment environment_;
  EmbeddingRequest request_;
  std::shared_ptr<HttpExchange> exchange_;
  std::chrono::steady_clock::time_point arrival_;
  std::vector<Input> inputs_;
  std::vector<std::vector<float>> embeddings_;
  size_t num_submitted_ = 0;
  size_t num_ended_ = 0;
  bool done_ = false;
};

}  // namespace tandem
