// What a client may ask of the sampling of one sequence. Names and defaults are the OpenAI API's and vLLM's.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tandem {

// Of the best tokens at one place, beside its own.
inline constexpr int32_t kMaxTopLogprobs = 20;

struct SamplingParams {
  int64_t max_tokens = 16;          // tokens to generate at most
  int64_t min_tokens = 0;           // EOS and stop tokens are not drawn before
  float temperature = 1.0F;         // [0, 2]; 0: greedy
  float top_p = 1.0F;               // (0, 1]
  int32_t top_k = 0;                // 0 or -1: all
  float min_p = 0.0F;               // [0, 1]
  float presence_penalty = 0.0F;    // [-2, 2]
  float frequency_penalty = 0.0F;   // [-2, 2]
  float repetition_penalty = 1.0F;  // > 0
  std::optional<uint64_t> seed;     // absent: the engine draws one
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;                // end the sequence besides EOS
  std::vector<std::pair<int32_t, float>> logit_bias;  // token, [-100, 100]
  std::vector<int32_t> allowed_token_ids;             // empty: all; EOS is not among them unless it is named
  // Token sequences that do not come in the output: the last token of one whose others have just come is not
  // drawn. None is empty.
  std::vector<std::vector<int32_t>> bad_words;
  int32_t num_top_logprobs = -1;         // -1: no log-probabilities; k: the token's own and the k best
  int32_t num_prompt_top_logprobs = -1;  // the same for the prompt's tokens (echo)

  // Ranges only; error().param names the field. Token ids are checked against vocab_size.
  Status Validate(int64_t vocab_size) const;
};

}  // namespace tandem
