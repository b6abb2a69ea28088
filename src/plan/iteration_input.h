// All that an executor needs for an iteration, as plain data (but for the masks of grammars, which are made
// while it runs): it could go to another process. Executors know nothing else of requests and of the books of
// the KV cache.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/pooling.h"
#include "base/token_mask.h"
#include "plan/block_move.h"
#include "plan/iteration_plan.h"

namespace tandem {

class Flag;

// How the tokens of a sequence are drawn. Values as in request/sampling_params.h.
struct SamplingInput {
  float temperature = 1.0F;
  float top_p = 1.0F;
  int32_t top_k = 0;  // 0: all
  float min_p = 0.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
  // A draw is a function of (seed, position) only, so a preempted request repeats it.
  uint64_t seed = 0;
  int32_t num_top_logprobs = -1;        // of drawn tokens; -1: none wanted
  int32_t num_given_top_logprobs = -1;  // of given ones (echo)
  // Empty where no penalty asks for them. output_tokens: up to the last token of the span, drafts included; a
  // row sees those up to its own.
  std::vector<int32_t> prompt_tokens;
  std::vector<int32_t> output_tokens;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> banned_tokens;  // EOS and stop ids before min_tokens, the last of bad words
  TokenMask allowed_tokens;
  // In place of allowed_tokens, of a grammar: pinned memory that holds the mask once
  // IterationInput::masks_ready says so, and until the iteration has ended. Masks of an iteration that lie
  // one after the other are in one allocation.
  std::span<const uint32_t> coming_mask;
};

// In place of a token id: the token that the iteration before draws for the sequence, which runs still.
inline constexpr int32_t kTokenToCome = std::numeric_limits<int32_t>::min();

// What belongs to a RowSpan.
struct SpanInput {
  std::vector<int32_t> token_ids;    // num_tokens of the span; the last may be kTokenToCome
  std::vector<int32_t> block_table;  // of all tokens up to the span's end, in its tier
  // Absent exactly if no row of the span gives logits.
  std::optional<SamplingInput> sampling;
  // Of the first rows that give logits, the tokens that are known to follow: these are not drawn, their
  // log-probabilities are wanted (echo). All rows behind them are drawn.
  std::vector<int32_t> given_tokens;
  // The sequence gets an embedding, made of these of its hidden states; what is drawn is for nobody.
  std::optional<Pooling> pooling = std::nullopt;
};

struct IterationInput {
  IterationPlan plan;
  // Of plan.moves, in the order in which their copies are made: blocks that one leaves may be where a later
  // one goes.
  std::vector<BlockMove> moves;
  std::vector<SpanInput> main;  // of plan.main.spans
  // Of plan.cohorts: the rows of those that enter or may end their token in this iteration, none of others.
  // Tokens and tables are used where they enter, sampling where they end.
  std::vector<std::vector<SpanInput>> cohorts;
  // Becomes 1 when every SamplingInput::coming_mask is there. Null where there are none.
  Flag* masks_ready = nullptr;
};

}  // namespace tandem
