// What the sessions of a benchmark have said so far.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/workload.h"

namespace tandem {

// Token ids below vocab_size; all but the answers are a function of the seed. Not thread-safe.
class SessionHistories {
 public:
  // workload: of sessions; outlives this.
  SessionHistories(const Workload& workload, uint64_t seed, int64_t vocab_size);

  // Of a turn whose turns before were answered: all that these sent, and what is new. Once for each turn.
  std::vector<int32_t> Prompt(int64_t index);
  // After the turn's prompt. False where that is not the whole answer: then the session cannot go on. With
  // seeded answers whatever came is passed over.
  bool AddAnswer(int64_t index, std::vector<int32_t> tokens);

  // Of a turn that was sent, until this goes: its prompt, and that with the tokens of its answer whose KV was
  // computed (all but the last, as far as the answer is known).
  std::span<const int32_t> SentBy(int64_t index) const;
  std::span<const int32_t> ComputedBy(int64_t index) const;

 private:
  std::vector<int32_t>& HistoryOf(int64_t index);

  const Workload& workload_;
  const uint64_t seed_;
  const int64_t vocab_size_;
  std::vector<int32_t> system_;
  std::vector<std::vector<int32_t>> histories_;
  std::vector<size_t> session_of_;  // each request's place in histories_
};

}  // namespace tandem
