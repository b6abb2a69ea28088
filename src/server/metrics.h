// Prometheus metrics under vLLM's names, so that existing dashboards and routers work, and Tandem's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tandem {

class Engine;

// One finished sequence.
struct FinishedSequence {
  std::string_view reason;  // "stop", "length", "abort", "error"
  double e2e_seconds = 0;
  double prefill_seconds = 0;  // from arrival to the first token
  int64_t prompt_tokens = 0;
  int64_t generation_tokens = 0;
  int64_t max_tokens = 0;
  int64_t n = 1;
};

// Any thread.
class ServerMetrics {
 public:
  // engine outlives this object; its gauges and counters are read when rendering.
  ServerMetrics(const Engine* engine, const std::string& model_name);
  ~ServerMetrics();
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  void ObserveTimeToFirstToken(double seconds);
  void ObserveInterTokenLatency(double seconds);
  void ObserveFinished(const FinishedSequence& sequence);

  // Prometheus text format.
  std::string Render() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace tandem
