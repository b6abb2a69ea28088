// A sequence the engine works on: prompt, parameters, what has been generated, where it stands.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/block_hash.h"
#include "base/pooling.h"
#include "base/token_mask.h"
#include "request/grammar.h"
#include "request/pooled_rows.h"
#include "request/request_output.h"
#include "request/sampling_params.h"

namespace tandem {

// What a client submits.
struct RequestSpec {
  std::vector<int32_t> prompt_tokens;  // not empty
  SamplingParams sampling;
  // May take long over each token: EngineOptions::max_tpot_ms is not for it.
  bool flexible = false;
  // What the answer has to follow, of the model's vocabulary; null: nothing. It ends where the grammar says,
  // whatever ignore_eos and min_tokens say, and excludes sampling.allowed_token_ids.
  std::shared_ptr<const Grammar> grammar;
  // Requests of other salts have nothing to do with it: neither begins with what was computed for the other.
  std::string cache_salt;
  // Instead of tokens an embedding is wanted, made of these of its hidden states: sampling means nothing, and
  // the prompt may fill the context. Its one output has embedding and kStop.
  std::optional<Pooling> pooling = std::nullopt;
};

class GrammarProgress;  // engine/grammar_masks.h

using Clock = std::chrono::steady_clock;

// Owned by the engine; touched only by the engine thread after submission.
struct Request {
  RequestId id = 0;
  std::vector<int32_t> prompt_tokens;
  SamplingParams sampling;
  bool flexible = false;
  // Engine::SubmitBegun: begins amid its output, of which the last num_made_tokens of the prompt are a part.
  bool begun = false;
  int64_t num_made_tokens = 0;
  uint64_t seed = 0;  // the one in use, drawn if the client gave none
  Clock::time_point arrival;
  std::optional<Clock::time_point> first_scheduled;  // stays after a preemption
  OutputCallback callback;
  // Any of them ends the sequence: EOS unless ignore_eos, and the stop tokens. Not drawn before min_tokens.
  std::vector<int32_t> end_tokens;
  TokenMask allowed_tokens;                  // sampling.allowed_token_ids
  std::shared_ptr<GrammarProgress> grammar;  // null: any tokens
  std::optional<Pooling> pooling;            // RequestSpec's
  // BlockHasher::Root of its salt; absent: it neither begins with cached blocks nor leaves any.
  std::optional<BlockHash> prefix_root;
  std::string cache_salt;                // RequestSpec's
  std::vector<BlockHash> prompt_hashes;  // of the prompt's full blocks; until the books have them
  uint64_t beginning = 0;                // ScheduledSequence's, of the prompt's first kPartitionTokens
  PooledRows pooled;                     // so far

  std::vector<int32_t> output_tokens;
  // Tokens whose K and V are in the cache. Everything before num_tokens() - 1 when it decodes; grows by
  // chunks while it prefills; 0 again after a preemption.
  int64_t num_computed_tokens = 0;
  // How many prompt log-probabilities have been reported already (a preempted request computes them anew).
  int64_t num_reported_prompt_logprobs = 0;
  int32_t num_preemptions = 0;
  int64_t num_cached_tokens = 0;  // that it had found when it first computed anything
  int64_t num_ever_computed = 0;  // num_computed_tokens at its most

  int64_t num_tokens() const { return static_cast<int64_t>(prompt_tokens.size() + output_tokens.size()); }
  // That it will have at most.
  int64_t final_tokens() const { return static_cast<int64_t>(prompt_tokens.size()) + sampling.max_tokens; }
  int32_t TokenAt(int64_t position) const {
    const auto prompt_len = static_cast<int64_t>(prompt_tokens.size());
    return position < prompt_len ? prompt_tokens[static_cast<size_t>(position)]
                                 : output_tokens[static_cast<size_t>(position - prompt_len)];
  }
};

}  // namespace tandem
