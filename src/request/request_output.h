// What the engine says about a request, iteration by iteration.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sampled_token.h"

namespace tandem {

using RequestId = uint64_t;

enum class FinishReason {
  kNone,       // goes on
  kStop,       // EOS or a stop token; that token is the last of output
  kLength,     // max_tokens or the model's context is full
  kCancelled,  // Engine::Cancel
  kError,      // see error
};

std::string_view FinishReasonName(FinishReason reason);

struct RequestOutput {
  RequestId id = 0;
  // The first iteration that had work of it began then; absent if none had yet.
  std::optional<std::chrono::steady_clock::time_point> first_scheduled;
  // New tokens since the last call, usually one.
  std::vector<SampledToken> tokens;
  int64_t num_cached_tokens = 0;  // of the prompt, that were in the KV cache when it began
  bool cpu_tier = false;          // where its KV lay when they came
  // Log-probabilities of prompt tokens 1.. (the first has none), in order, as prefill reaches them; only if
  // asked.
  std::vector<SampledToken> prompt_logprobs;
  // With RequestSpec::pooling, in the last call: hidden_size values, not normalized.
  std::vector<float> embedding;
  FinishReason finish_reason = FinishReason::kNone;
  int32_t stop_token_id = -1;  // which token ended it, with kStop
  std::optional<Error> error;
};

// Called on the engine thread, in order, and for the last time with a finish_reason. Must not block: hand
// over and return. May call Engine::Cancel and Engine::Submit.
using OutputCallback = std::function<void(RequestOutput output)>;

}  // namespace tandem
