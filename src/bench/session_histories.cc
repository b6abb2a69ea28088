#include "bench/session_histories.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "bench/prompt_tokens.h"

namespace tandem {

SessionHistories::SessionHistories(const Workload& workload, uint64_t seed, int64_t vocab_size)
    : workload_(workload), seed_(seed), vocab_size_(vocab_size) {
  constexpr uint64_t kSystemSeed = 0xbb67ae8584caa73bU;
  TANDEM_CHECK(workload.has_sessions(), "histories of {}, which has no sessions", workload.name);
  const WorkloadRequest& first = workload.requests.front();
  system_ = RandomPrompt(seed ^ kSystemSeed, 0, first.prompt_tokens - first.turn->new_tokens, vocab_size);
  for (const WorkloadRequest& request : workload.requests) {
    if (request.turn->number == 0) histories_.emplace_back();
    session_of_.push_back(histories_.size() - 1);
  }
}

std::vector<int32_t>& SessionHistories::HistoryOf(int64_t index) {
  return histories_[session_of_[static_cast<size_t>(index)]];
}

std::vector<int32_t> SessionHistories::Prompt(int64_t index) {
  const WorkloadRequest& request = workload_.requests[static_cast<size_t>(index)];
  std::vector<int32_t>& history = HistoryOf(index);
  if (request.turn->number == 0) history = system_;
  const std::vector<int32_t> added = RandomPrompt(seed_, index, request.turn->new_tokens, vocab_size_);
  history.insert(history.end(), added.begin(), added.end());
  TANDEM_CHECK(std::ssize(history) == request.prompt_tokens, "turn {} has {} tokens instead of {}", index,
               history.size(), request.prompt_tokens);
  return history;
}

bool SessionHistories::AddAnswer(int64_t index, std::vector<int32_t> tokens) {
  constexpr uint64_t kAnswerSeed = 0xa54ff53a5f1d36f1U;
  const int64_t num_tokens = workload_.requests[static_cast<size_t>(index)].output_tokens;
  if (workload_.seeded_answers) tokens = RandomPrompt(seed_ ^ kAnswerSeed, index, num_tokens, vocab_size_);
  if (std::ssize(tokens) != num_tokens) return false;
  std::vector<int32_t>& history = HistoryOf(index);
  history.insert(history.end(), tokens.begin(), tokens.end());
  return true;
}

std::span<const int32_t> SessionHistories::SentBy(int64_t index) const {
  const auto num_tokens = static_cast<size_t>(workload_.requests[static_cast<size_t>(index)].prompt_tokens);
  return std::span(histories_[session_of_[static_cast<size_t>(index)]]).first(num_tokens);
}

std::span<const int32_t> SessionHistories::ComputedBy(int64_t index) const {
  const WorkloadRequest& request = workload_.requests[static_cast<size_t>(index)];
  const std::vector<int32_t>& history = histories_[session_of_[static_cast<size_t>(index)]];
  const int64_t made = workload_.seeded_answers ? 0 : request.output_tokens - 1;
  return std::span(history).first(
      std::min(static_cast<size_t>(request.prompt_tokens + made), history.size()));
}

}  // namespace tandem
