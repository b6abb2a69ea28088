// A generated token with its log-probabilities: made by the sampling op, carried to the client.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0F;  // natural logarithm, of the raw logits' softmax
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0.0F;                    // valid if log-probabilities were asked for
  int32_t rank = 0;                        // 1 for the most likely; valid if log-probabilities were asked for
  std::vector<TokenLogprob> top_logprobs;  // best first
};

}  // namespace tandem
