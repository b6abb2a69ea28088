// The longest context that one request may have, and what limits it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine_options.h"
#include "kv/kv_cache_options.h"

namespace tandem {

// Tokens of context that may be on their way through the device at once (--kv-transit): by default enough for
// two full iterations of prompts, or for one that is long. A size in bytes is that of both slots, each of a
// layer. options: with its numbers complete. shape: as they pass through the device.
int64_t TransitTokens(const EngineOptions& options, const KvShape& shape);

struct LongestContext {
  int64_t tokens = 0;
  std::string why;  // the rest of a sentence: "... because {why}"
};

// Any single request must be able to run alone: in the gpu tier, or through the transit in the cpu tier.
// wanted_tokens: the model's or what was asked for. cpu_tokens: of a tier that the strategy uses; 0: none.
LongestContext FindLongestContext(int64_t wanted_tokens, int64_t gpu_tokens, int64_t cpu_tokens,
                                  int64_t transit_tokens);

}  // namespace tandem
