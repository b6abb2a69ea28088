#include "bench/prompt_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>

#include "traces/mooncake_trace.h"

namespace tandem {
namespace {

constexpr int64_t kVocabSize = 300;

TEST(RandomPrompt, IsAFunctionOfSeedAndIndex) {
  const std::vector<int32_t> prompt = RandomPrompt(1, 2, 6000, kVocabSize);
  EXPECT_EQ(prompt, RandomPrompt(1, 2, 6000, kVocabSize));
  EXPECT_NE(prompt, RandomPrompt(1, 3, 6000, kVocabSize));
  EXPECT_NE(prompt, RandomPrompt(2, 2, 6000, kVocabSize));
  EXPECT_EQ(std::set<int32_t>(prompt.begin(), prompt.end()).size(), 300U) << "all tokens come";
  EXPECT_EQ(*std::min_element(prompt.begin(), prompt.end()), 0);
  EXPECT_EQ(*std::max_element(prompt.begin(), prompt.end()), 299);
}

// How many tokens two prompts begin with alike.
int64_t SharedPrefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(std::min(a.size(), b.size())), b.begin())
             .first -
         a.begin();
}

TEST(PromptTokens, TheSameIdIsTheSameBlock) {
  const auto prompt = [](int64_t num_tokens, std::vector<int64_t> ids, int64_t index, uint64_t seed = 7) {
    return PromptTokens({.prompt_tokens = num_tokens, .output_tokens = 1, .block_ids = std::move(ids)}, index,
                        seed, kVocabSize);
  };
  const auto first = prompt(1100, {4, 9, 2}, 0);
  EXPECT_EQ(first.size(), 1100U);
  EXPECT_EQ(first, prompt(1100, {4, 9, 2}, 1)) << "nothing in it is the request's own";
  EXPECT_EQ(SharedPrefix(first, prompt(2000, {4, 9, 3, 5}, 1)), 2 * kMooncakeBlockTokens);
  EXPECT_EQ(SharedPrefix(first, prompt(1100, {5, 9, 2}, 1)), 0);
  EXPECT_EQ(SharedPrefix(first, prompt(1100, {4, 9, 2}, 0, 8)), 0) << "another seed, other tokens";
  // What no id is given for is the request's own.
  EXPECT_EQ(SharedPrefix(prompt(1100, {4, 9}, 0), prompt(1100, {4, 9}, 1)), 2 * kMooncakeBlockTokens);
}

TEST(PromptTokens, WithoutIdsAllIsRandom) {
  const WorkloadRequest request = {
      .prompt_tokens = 20, .output_tokens = 9, .arrival_s = {}, .begun = true, .made_tokens = 4};
  EXPECT_EQ(PromptTokens(request, 3, 1, kVocabSize), RandomPrompt(1, 3, 24, kVocabSize));
}

}  // namespace
}  // namespace tandem
