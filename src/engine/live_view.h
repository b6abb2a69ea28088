// What an engine is at, for people who watch it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/engine_stats.h"
#include "plan/iteration_plan.h"
#include "request/request_output.h"

namespace tandem {

struct LiveRequest {
  enum class State : uint8_t { kWaiting, kPrefill, kDecode };
  RequestId id = 0;
  State state = State::kWaiting;
  std::optional<Tier> tier;  // absent while it waits
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;  // whose K and V are in the cache
  int64_t generated_tokens = 0;
  int64_t max_tokens = 0;  // to generate at most
  int64_t blocks = 0;      // of the KV cache
  int64_t preemptions = 0;
};

// All of one moment between two iterations.
struct LiveView {
  EngineStats stats;
  std::vector<LiveRequest> requests;  // in the order of the queues, those that run first
  int64_t num_left_off = 0;           // waiting ones behind those
};

}  // namespace tandem
