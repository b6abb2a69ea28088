#include "engine/strategy_ledger.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(StrategyLedgerTest, PromisesAreKeptApartByStrategy) {
  StrategyLedger ledger;
  EXPECT_TRUE(ledger.current().empty());
  ledger.Count({.strategy = "asymmetric", .tokens_per_s = 1000}, 0.5, 400);
  ledger.Count({.strategy = "asymmetric", .tokens_per_s = 2000}, 0.5, 800);
  ledger.Count({.strategy = "async", .tokens_per_s = 3000}, 1, 3100);
  ledger.Count({.strategy = "asymmetric", .tokens_per_s = 1000}, 2, 1900);
  ledger.Count({}, 7, 7);
  EXPECT_EQ(ledger.current(), "asymmetric");
  ASSERT_EQ(ledger.accounts().size(), 2U);
  const StrategyAccount& asymmetric = ledger.accounts().at("asymmetric");
  EXPECT_EQ(asymmetric.num_choices, 2U);
  EXPECT_DOUBLE_EQ(asymmetric.seconds, 3);
  EXPECT_DOUBLE_EQ(asymmetric.promised_tokens, 3500);
  EXPECT_EQ(asymmetric.made_tokens, 3100U);
  const StrategyAccount& async = ledger.accounts().at("async");
  EXPECT_EQ(async.num_choices, 1U);
  EXPECT_DOUBLE_EQ(async.promised_tokens, 3000);
  EXPECT_EQ(async.made_tokens, 3100U);
}

}  // namespace
}  // namespace tandem
