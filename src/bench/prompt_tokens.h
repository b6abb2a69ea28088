// Of which tokens the prompts of a benchmark are made.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/workload.h"

namespace tandem {

// Random tokens of request `index`, each of [0, vocab_size): a function of the arguments only. No two
// requests share a prefix that a cache could use.
std::vector<int32_t> RandomPrompt(uint64_t seed, int64_t index, int64_t num_tokens, int64_t vocab_size);

// The prompt of a request that depends on no other one, and the output tokens that it has made behind it.
// What its blocks are known by says their tokens: the same id, the same tokens under the same seed. What no
// id is given for is random.
std::vector<int32_t> PromptTokens(const WorkloadRequest& request, int64_t index, uint64_t seed,
                                  int64_t vocab_size);

}  // namespace tandem
