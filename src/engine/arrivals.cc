// How requests come to the engine thread's queues.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"

namespace tandem {

ScheduledSequence EngineLoop::SequenceOf(const Request& request) {
  return {.id = request.id,
          .num_tokens = request.num_tokens(),
          .num_computed = request.num_computed_tokens,
          .flexible = request.flexible,
          .final_tokens = request.final_tokens()};
}

void EngineLoop::Enqueue(std::unique_ptr<Request> request) {
  const ScheduledSequence sequence = SequenceOf(*request);
  const auto [entry, is_new] = requests_.emplace(sequence.id, std::move(request));
  if (!AssumeComputed(entry->second.get())) state_.waiting.push_back(sequence);
}

bool EngineLoop::AssumeComputed(Request* request) {
  const int64_t num_tokens = request->num_tokens();
  if (!request->assume_computed || num_tokens < 2 ||
      static_cast<int64_t>(state_.running.size()) >= options_.limits.max_num_seqs)
    return false;
  const int64_t blocks = books_->BlocksFor(num_tokens);
  const auto leaves_free = [&](Tier tier, int64_t num_blocks) {
    return books_->free_blocks(tier) - blocks >= num_blocks;
  };
  // Every sequence there may soon want another block.
  const int64_t num_gpu_sequences =
      std::count_if(state_.running.begin(), state_.running.end(),
                    [this](const ScheduledSequence& each) { return books_->tier_of(each.id) == Tier::kGpu; });
  constexpr int64_t kFreeShareOfCpuTier = 100;
  Tier tier = Tier::kGpu;
  if (!leaves_free(Tier::kGpu, options_.limits.reserve_blocks + num_gpu_sequences)) {
    tier = Tier::kCpu;
    if (!StrategyUsesCpuTier(strategy_->name()) || !state_.cpu_tier_usable ||
        !leaves_free(Tier::kCpu, books_->total_blocks(Tier::kCpu) / kFreeShareOfCpuTier + 1))
      return false;
  }
  if (!books_->Reserve(request->id, tier, num_tokens)) return false;
  request->num_computed_tokens = num_tokens - 1;
  state_.running.push_back(SequenceOf(*request));
  // Others like it have ended before, where work is amid.
  CountEnd(*request, request->sampling.max_tokens);
  return true;
}

}  // namespace tandem
