#include "engine/kv_event_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "engine/request_books_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SipHashKey kKey = {1, 2};

// Requests of books with blocks of 4 tokens, and what is told of them.
class KvEventCollectorTest : public ::testing::Test {
 protected:
  KvEventCollectorTest() { use_.kv->Listen(&collector_); }

  // Begins as all do, with tokens 0, 1, ...
  std::unique_ptr<Request> Make(RequestId id, int64_t prompt_len, const std::string& salt = "") {
    auto request = testing::MakeRequest(id, prompt_len);
    std::iota(request->prompt_tokens.begin(), request->prompt_tokens.end(), 0);
    request->cache_salt = salt;
    request->prefix_root = hasher_.Root(salt);
    request->prompt_hashes = hasher_.FullBlocks(*request->prefix_root, request->prompt_tokens);
    return request;
  }
  std::vector<uint64_t> Hashes(int64_t num_blocks, const std::string& salt = "") {
    std::vector<int32_t> tokens(static_cast<size_t>(4 * num_blocks));
    std::iota(tokens.begin(), tokens.end(), 0);
    std::vector<uint64_t> hashes;
    for (const BlockHash& hash : hasher_.FullBlocks(hasher_.Root(salt), tokens))
      hashes.push_back(hash.halves[0]);
    return hashes;
  }
  void Move(SequenceId id, Tier to) {
    IterationPlan plan;
    plan.moves = {{id, to}};
    use_.Apply(plan);
  }

  BlockHasher hasher_{kKey, 4};
  testing::BooksInUse use_{{4, 6}, {}, &hasher_};
  KvEventCollector collector_{4, [this](SequenceId id) -> const Request& { return use_.books.At(id); }};
};

TEST_F(KvEventCollectorTest, AChainIsToldInOneEvent) {
  use_.AddRunning(Make(1, 10));
  KvEvents events = collector_.Take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::kStored);
  EXPECT_EQ(events[0].tier, Tier::kGpu);
  EXPECT_EQ(events[0].block_hashes, Hashes(2));
  EXPECT_FALSE(events[0].parent_block_hash);
  EXPECT_THAT(events[0].token_ids, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(events[0].block_size, 4);
  EXPECT_EQ(events[0].cache_salt, "");
  EXPECT_THAT(collector_.Take(), IsEmpty());
}

TEST_F(KvEventCollectorTest, OutputIsToldWhereItFillsABlock) {
  Request& request = use_.AddRunning(Make(1, 7));
  collector_.Take();
  use_.books.TakeToken(&request, 77);
  use_.Apply(testing::MainPlan({RowSpan::Decode(1, 7, Tier::kGpu)}));
  use_.books.TakeComputed(&request, 8);
  const KvEvents events = collector_.Take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].parent_block_hash, Hashes(1)[0]);
  EXPECT_EQ(events[0].block_hashes.size(), 1U);
  EXPECT_THAT(events[0].token_ids, ElementsAre(4, 5, 6, 77));
}

TEST_F(KvEventCollectorTest, ASaltIsToldWithTheFirstBlock) {
  use_.AddRunning(Make(1, 4, "secret"));
  use_.AddRunning(Make(2, 4));
  const KvEvents events = collector_.Take();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].cache_salt, "secret");
  EXPECT_EQ(events[0].block_hashes, Hashes(1, "secret"));
  EXPECT_EQ(events[1].cache_salt, "");
  EXPECT_EQ(events[1].block_hashes, Hashes(1));
}

TEST_F(KvEventCollectorTest, BothTiersAreToldOf) {
  use_.AddRunning(Make(1, 8));
  collector_.Take();
  Move(1, Tier::kCpu);
  const KvEvents events = collector_.Take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tier, Tier::kCpu);
  EXPECT_EQ(events[0].block_hashes, Hashes(2));
  EXPECT_THAT(events[0].token_ids, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(KvEventCollectorTest, WhatIsCopiedDownIsToldWithItsTokensWhenItsRequestIsGone) {
  use_.AddRunning(Make(1, 8, "s"));
  use_.books.Forget(1);
  collector_.Take();
  use_.kv->CopyUnused({.margin = 4, .max_blocks = 1});
  KvEvents events = collector_.Take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tier, Tier::kCpu);
  EXPECT_THAT(events[0].block_hashes, ElementsAre(Hashes(2, "s")[0]));
  EXPECT_THAT(events[0].token_ids, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(events[0].cache_salt, "s");
  // And what is copied later follows it.
  use_.kv->CopyUnused({.margin = 4, .max_blocks = 1});
  events = collector_.Take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].parent_block_hash, Hashes(2, "s")[0]);
  EXPECT_THAT(events[0].token_ids, ElementsAre(4, 5, 6, 7));
}

TEST_F(KvEventCollectorTest, WhatIsGivenUpIsToldOfItsTierAlone) {
  use_.AddRunning(Make(1, 8));
  Move(1, Tier::kCpu);
  use_.books.Forget(1);
  collector_.Take();
  ASSERT_TRUE(use_.kv->Reserve(9, Tier::kGpu, 16));
  KvEvents events = collector_.Take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::kRemoved);
  EXPECT_EQ(events[0].tier, Tier::kGpu);
  // The end of a chain goes first.
  EXPECT_THAT(events[0].block_hashes, ElementsAre(Hashes(2)[1], Hashes(2)[0]));
  ASSERT_TRUE(use_.kv->Reserve(10, Tier::kCpu, 24));
  events = collector_.Take();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].tier, Tier::kCpu);
  EXPECT_EQ(events[0].block_hashes.size(), 2U);
}

TEST_F(KvEventCollectorTest, AfterAllIsClearedEverythingIsNew) {
  use_.AddRunning(Make(1, 8));
  collector_.Take();
  use_.kv->ForgetPrefixes();
  use_.AddRunning(Make(2, 8));
  const KvEvents events = collector_.Take();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::kCleared);
  EXPECT_EQ(events[1].kind, KvEvent::Kind::kStored);
  EXPECT_EQ(events[1].block_hashes, Hashes(2));
}

}  // namespace
}  // namespace tandem
