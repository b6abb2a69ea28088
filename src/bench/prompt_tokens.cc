#include "bench/prompt_tokens.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "bench/seeded_draws.h"
#include "traces/mooncake_trace.h"

namespace tandem {

std::vector<int32_t> RandomPrompt(uint64_t seed, int64_t index, int64_t num_tokens, int64_t vocab_size) {
  constexpr uint64_t kOddConstant = 0x9e3779b97f4a7c15U;
  std::mt19937_64 random(seed ^ (kOddConstant * (static_cast<uint64_t>(index) + 1)));
  std::vector<int32_t> tokens(static_cast<size_t>(num_tokens));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(DrawBelow(random, static_cast<uint64_t>(vocab_size)));
  }
  return tokens;
}

std::vector<int32_t> PromptTokens(const WorkloadRequest& request, int64_t index, uint64_t seed,
                                  int64_t vocab_size) {
  // A block's tokens are no request's.
  constexpr uint64_t kBlockSeed = 0x6a09e667f3bcc909U;
  const int64_t num_tokens = request.prompt_tokens + request.made_tokens;
  std::vector<int32_t> prompt;
  prompt.reserve(static_cast<size_t>(num_tokens));
  for (const int64_t id : request.block_ids) {
    const std::vector<int32_t> block = RandomPrompt(seed ^ kBlockSeed, id, kMooncakeBlockTokens, vocab_size);
    const int64_t num_left = request.prompt_tokens - std::ssize(prompt);
    prompt.insert(prompt.end(), block.begin(), block.begin() + std::min(kMooncakeBlockTokens, num_left));
  }
  const std::vector<int32_t> rest = RandomPrompt(seed, index, num_tokens - std::ssize(prompt), vocab_size);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  return prompt;
}

}  // namespace tandem
