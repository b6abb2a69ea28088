#include "bench/possible_hits.h"

#include <algorithm>

#include "bench/prompt_tokens.h"

namespace tandem {

PossibleHits::PossibleHits(int64_t block_size) : hasher_(SipHashKey{}, block_size) {}

int64_t PossibleHits::Count(std::span<const int32_t> prompt) const {
  if (prompt.empty()) return 0;
  int64_t num_blocks = 0;
  // A block is known only where all before it are.
  for (const BlockHash& hash : hasher_.FullBlocks(hasher_.Root(""), prompt.first(prompt.size() - 1))) {
    if (!computed_.contains(hash)) break;
    ++num_blocks;
  }
  return num_blocks * hasher_.block_size();
}

void PossibleHits::Add(std::span<const int32_t> tokens) {
  for (const BlockHash& hash : hasher_.FullBlocks(hasher_.Root(""), tokens)) computed_.insert(hash);
}

void CountPossibleHits(const Workload& workload, const PromptSource& source,
                       const SessionHistories* histories, int64_t block_size,
                       const std::vector<bool>& was_sent, std::vector<RequestRecord>* records) {
  if (workload.requests.empty() || (histories == nullptr && workload.requests.front().block_ids.empty()))
    return;
  std::vector<size_t> order;
  for (size_t i = 0; i < records->size(); ++i) {
    if (was_sent[i]) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*records)[a].start < (*records)[b].start; });
  PossibleHits hits(block_size);
  int64_t most_of_first_turns = 0;
  for (const size_t i : order) {
    RequestRecord& record = (*records)[i];
    const auto index = static_cast<int64_t>(i);
    if (histories != nullptr) {
      record.possible_hit_tokens = hits.Count(histories->SentBy(index));
      if (record.turn->number == 0)
        most_of_first_turns = std::max(most_of_first_turns, *record.possible_hit_tokens);
      if (record.output_tokens > 0) hits.Add(histories->ComputedBy(index));
      continue;
    }
    const std::vector<int32_t> prompt =
        PromptTokens(workload.requests[i], index, source.seed, source.vocab_size);
    record.possible_hit_tokens = hits.Count(prompt);
    if (record.output_tokens > 0) hits.Add(prompt);
  }
  for (const size_t i : order) {
    RequestRecord& record = (*records)[i];
    record.shared_tokens = *record.possible_hit_tokens;
    if (histories != nullptr) record.shared_tokens = std::min(record.shared_tokens, most_of_first_turns);
  }
}

}  // namespace tandem
