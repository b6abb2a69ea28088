// Prometheus metrics under vLLM's names, so that existing dashboards and routers work, and Tandem's own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

class Engine;
class LatencyWindow;

// Consecutive: their sum is the time from arrival to the last token.
struct SequencePhases {
  double queue_seconds = 0;    // arrival to the first iteration with work of it
  double prefill_seconds = 0;  // from there to the first token
  double decode_seconds = 0;   // from there to the last
};

// A sequence that has ended.
struct FinishedSequence {
  std::string_view reason;               // "stop", "length", "abort", "error"
  double e2e_seconds = 0;                // arrival to the last token, or to the end if there is none
  std::optional<SequencePhases> phases;  // absent without a token: nobody was told what it had reached
  int64_t prompt_tokens = 0;
  int64_t generation_tokens = 0;
  int64_t max_tokens = 0;
};

// A prompt whose n sequences have all ended.
struct FinishedPrompt {
  int64_t n = 1;
  int64_t max_generation_tokens = 0;  // of any of them
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
  // Tokens that a client has got, as usage counts them.
  void CountGenerationTokens(int64_t num_tokens);
  // Fields of requests that are unknown.
  void CountIgnoredFields(int64_t num_fields);
  void ObserveFinished(const FinishedSequence& sequence);
  void ObserveFinished(const FinishedPrompt& prompt);

  // Io thread, as all that observes: what is observed goes there too from now on. null: nowhere. Outlives the
  // metrics or the next call.
  void Watch(LatencyWindow* window);

  // Prometheus text format.
  std::string Render() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
  LatencyWindow* window_ = nullptr;
};

}  // namespace tandem
