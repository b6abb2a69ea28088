// From logits to the next token and its log-probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "base/matrix_view.h"
#include "base/sampled_token.h"

namespace tandem {

// How to sample one row. Order, as vLLM's: allowed tokens, logit bias and banned tokens, repetition /
// frequency / presence penalties, temperature, min_p, top_k, top_p, draw. Log-probabilities are those of the
// raw logits. Where every token is out of the question, bans, bias and penalties do not count.
struct SampleRow {
  int64_t logits_row = 0;
  float temperature = 1.0F;  // 0: greedy, the lowest id among equals
  float top_p = 1.0F;
  int32_t top_k = 0;  // 0: all
  float min_p = 0.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
  // The draw is a function of (seed, position) only, so a preempted request repeats it.
  uint64_t seed = 0;
  uint64_t position = 0;
  int32_t num_top_logprobs = -1;           // -1: none wanted; k >= 0: the token's own and the k best
  std::span<const int32_t> prompt_tokens;  // for repetition_penalty
  std::span<const int32_t> output_tokens;  // for all three penalties
  std::span<const std::pair<int32_t, float>> logit_bias;
  std::span<const int32_t> banned_tokens;    // EOS and stop ids before min_tokens, the last of bad words
  std::span<const uint32_t> allowed_tokens;  // a TokenMask of the vocabulary; empty: all
  // What the mask says is there when the stream gets to the op, not before; it lies in pinned memory.
  bool mask_is_coming = false;
  // Not drawn but given: its log-probability is what is wanted (prompt logprobs). -1: draw.
  int32_t forced_token = -1;
};

// logits: [rows, vocab] fp32; undefined afterwards. Each row of logits belongs to one SampleRow at most. rows
// and results: host memory, results as long as rows; both, and what the spans point to, stay alive and (but
// for masks that are coming) unchanged until the stream has run the op. results are filled after the stream's
// Synchronize. drawn: unless it is null, [rows] in device memory that gets the tokens too, for ops behind
// this one on the stream.
struct SampleArgs {
  MatrixView logits;
  std::span<const SampleRow> rows;
  std::span<SampledToken> results;
  int32_t* drawn = nullptr;
};

// Of token_ids [num_rows] each that is negative, ~i, becomes drawn[i], which a sampling op before this one on
// the stream has written. Both in device memory.
struct DrawnTokensArgs {
  int32_t* token_ids = nullptr;
  int64_t num_rows = 0;
  const int32_t* drawn = nullptr;
};

}  // namespace tandem
