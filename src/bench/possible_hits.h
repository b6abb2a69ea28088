// What a prefix cache that never gives anything up would have found.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/block_hash.h"
#include "bench/request_recorder.h"
#include "bench/session_histories.h"
#include "bench/workload.h"

namespace tandem {

// Not thread-safe.
class PossibleHits {
 public:
  // block_size: tokens. A prompt's last token is always computed, so no block that has it is a hit.
  explicit PossibleHits(int64_t block_size);

  // How many tokens of whole blocks this prompt begins with that were computed before.
  int64_t Count(std::span<const int32_t> prompt) const;
  // These were computed.
  void Add(std::span<const int32_t> tokens);

 private:
  BlockHasher hasher_;
  std::unordered_set<BlockHash, BlockHashBits> computed_;
};

// Of which tokens a run's prompts were made: what SessionHistories and PromptTokens take.
struct PromptSource {
  uint64_t seed = 0;
  int64_t vocab_size = 0;
};

// Sets possible_hit_tokens and shared_tokens of the requests that were sent: what those sent before had
// computed, once their first token was there. Nothing where prompts share nothing. records: of all requests
// of the workload, in its order; was_sent: likewise. Sessions share what the first turn of any finds, others
// all that they find. histories: of this run, null if the workload has no sessions.
void CountPossibleHits(const Workload& workload, const PromptSource& source,
                       const SessionHistories* histories, int64_t block_size,
                       const std::vector<bool>& was_sent, std::vector<RequestRecord>* records);

}  // namespace tandem
