#include "bench/possible_hits.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tandem {
namespace {

std::vector<int32_t> TokensFrom(int32_t begin, int32_t end) {
  std::vector<int32_t> tokens(static_cast<size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

TEST(PossibleHits, AreWholeBlocksFromTheBeginningOn) {
  PossibleHits hits(4);
  EXPECT_EQ(hits.Count(TokensFrom(0, 12)), 0);
  hits.Add(TokensFrom(0, 11));
  EXPECT_EQ(hits.Count(TokensFrom(0, 3)), 0);
  EXPECT_EQ(hits.Count(TokensFrom(0, 4)), 0) << "the last token is always computed";
  EXPECT_EQ(hits.Count(TokensFrom(0, 5)), 4);
  EXPECT_EQ(hits.Count(TokensFrom(0, 100)), 8) << "the third block was not full";
  EXPECT_EQ(hits.Count(TokensFrom(4, 100)), 0) << "the same tokens elsewhere are others";
  std::vector<int32_t> other = TokensFrom(0, 100);
  other[5] = -1;
  EXPECT_EQ(hits.Count(other), 4);
  hits.Add(other);
  EXPECT_EQ(hits.Count(other), 96);
  EXPECT_EQ(hits.Count(TokensFrom(0, 100)), 8);
  EXPECT_EQ(hits.Count({}), 0);
}

}  // namespace
}  // namespace tandem
