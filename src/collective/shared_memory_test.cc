#include "collective/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/host/host_device.h"

namespace tandem {
namespace {

using testing::Each;
using testing::HasSubstr;

// Shards with a stream each, fed by one thread.
class SharedMemoryTest : public testing::TestWithParam<int> {
 protected:
  explicit SharedMemoryTest(std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : group_(CreateSharedMemoryGroup({.num_shards = GetParam(), .timeout = timeout})) {
    for (int rank = 0; rank < num_shards(); ++rank)
      streams_.push_back(device_->CreateStream(StreamKind::kCompute, "shard"));
  }

  static int num_shards() { return GetParam(); }
  Collective& On(int rank) { return *group_->Of(rank, ShardChannel::kCompute); }
  Stream& StreamOf(int rank) { return *streams_[static_cast<size_t>(rank)]; }
  void Synchronize() {
    for (const auto& stream : streams_) stream->Synchronize();
  }

  std::unique_ptr<CollectiveGroup> group_;
  const std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 2});
  std::vector<std::unique_ptr<Stream>> streams_;
};

INSTANTIATE_TEST_SUITE_P(Shards, SharedMemoryTest, testing::Values(1, 2, 3, 4));

TEST_P(SharedMemoryTest, AllReduceAddsInTheOrderOfRanks) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kCols = 911;
  constexpr int kRounds = 20;
  // Sums of these depend on their order.
  const auto value = [](int rank, int64_t i) {
    return (rank % 2 == 0 ? 1.0F : -1.0F) * static_cast<float>(1 + (i * 7919 + rank * 104729) % 10007) *
           (rank == 1 ? 1e-6F : 1.0F);
  };
  std::vector<std::vector<float>> values(static_cast<size_t>(num_shards()));
  for (int round = 0; round < kRounds; ++round) {
    for (int rank = 0; rank < num_shards(); ++rank) {
      auto& own = values[static_cast<size_t>(rank)];
      own.resize(kRows * kCols);
      for (int64_t i = 0; i < kRows * kCols; ++i) own[static_cast<size_t>(i)] = value(rank, i + round);
      On(rank).AllReduce(StreamOf(rank), MatrixView::Dense(own.data(), DType::kF32, kRows, kCols));
    }
    Synchronize();
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      float sum = value(0, i + round);
      for (int rank = 1; rank < num_shards(); ++rank) sum += value(rank, i + round);
      for (const auto& own : values) ASSERT_EQ(own[static_cast<size_t>(i)], sum) << i;
    }
  }
}

TEST_P(SharedMemoryTest, AllGatherBringsTheColumnsOfAll) {
  constexpr int64_t kRows = 5;
  const int64_t cols = 10 * num_shards() + 3;
  std::vector<std::vector<int32_t>> matrices(static_cast<size_t>(num_shards()));
  for (int rank = 0; rank < num_shards(); ++rank) {
    auto& own = matrices[static_cast<size_t>(rank)];
    own.assign(static_cast<size_t>(kRows * cols), -1);
    const int64_t begin = cols * rank / num_shards();
    const int64_t end = cols * (rank + 1) / num_shards();
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = begin; col < end; ++col)
        own[static_cast<size_t>(row * cols + col)] = static_cast<int32_t>(row * cols + col);
    }
    On(rank).AllGather(StreamOf(rank), MatrixView::Dense(own.data(), DType::kI32, kRows, cols), begin,
                       end - begin);
  }
  Synchronize();
  for (const auto& own : matrices) {
    for (size_t i = 0; i < own.size(); ++i) ASSERT_EQ(own[i], static_cast<int32_t>(i));
  }
}

TEST_P(SharedMemoryTest, BroadcastAndMinFollowEachOther) {
  std::vector<std::vector<int32_t>> tokens(static_cast<size_t>(num_shards()));
  std::vector<std::vector<int32_t>> joins(static_cast<size_t>(num_shards()));
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    for (int rank = 0; rank < num_shards(); ++rank) {
      auto& own = tokens[static_cast<size_t>(rank)];
      own.assign(3, 1000 * rank + round);
      auto& can_join = joins[static_cast<size_t>(rank)];
      // Of the groups 0, 1, ... each can join everywhere but on the rank of its number.
      can_join.assign(5, 1);
      can_join[static_cast<size_t>(rank)] = 0;
      On(rank).Broadcast(StreamOf(rank), own.data(), own.size() * sizeof(int32_t));
      On(rank).Min(StreamOf(rank), can_join);
    }
    Synchronize();
    for (const auto& own : tokens) ASSERT_THAT(own, Each(round));
    for (const auto& can_join : joins) {
      for (size_t i = 0; i < can_join.size(); ++i)
        ASSERT_EQ(can_join[i], i < static_cast<size_t>(num_shards()) ? 0 : 1);
    }
  }
}

TEST_P(SharedMemoryTest, ChannelsDoNotWaitForEachOther) {
  std::vector<std::unique_ptr<Stream>> others;
  others.reserve(static_cast<size_t>(num_shards()));
  std::vector<int32_t> first(static_cast<size_t>(num_shards()));
  std::vector<int32_t> second(static_cast<size_t>(num_shards()));
  for (int rank = 0; rank < num_shards(); ++rank)
    others.push_back(device_->CreateStream(StreamKind::kCopy, "riders"));
  // Rank by rank in one order on one channel, in the other on the other.
  for (int rank = 0; rank < num_shards(); ++rank) {
    const int other = num_shards() - 1 - rank;
    const auto at = static_cast<size_t>(rank);
    const auto other_at = static_cast<size_t>(other);
    first[at] = rank + 5;
    second[other_at] = other + 7;
    On(rank).Min(StreamOf(rank), std::span(&first[at], 1));
    group_->Of(other, ShardChannel::kRiders)->Min(*others[other_at], std::span(&second[other_at], 1));
  }
  Synchronize();
  for (const auto& stream : others) stream->Synchronize();
  EXPECT_THAT(first, Each(5));
  EXPECT_THAT(second, Each(7));
  EXPECT_FALSE(group_->failure());
}

class ImpatientSharedMemoryTest : public SharedMemoryTest {
 protected:
  ImpatientSharedMemoryTest() : SharedMemoryTest(std::chrono::milliseconds(200)) {}
};

INSTANTIATE_TEST_SUITE_P(Shards, ImpatientSharedMemoryTest, testing::Values(2, 3));

// The last shard never comes: the others' streams run to their end, and the failure names it.
TEST_P(ImpatientSharedMemoryTest, AShardThatDoesNotComeIsNamed) {
  std::vector<float> values(static_cast<size_t>(num_shards()), 1.0F);
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank + 1 < num_shards(); ++rank) {
      On(rank).AllReduce(StreamOf(rank),
                         MatrixView::Dense(&values[static_cast<size_t>(rank)], DType::kF32, 1, 1));
    }
  }
  Synchronize();
  const std::optional<Error> failure = group_->failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kUnavailable);
  EXPECT_EQ(failure->message, fmt::format("shard {} of {} has kept the others waiting for 0.2 s",
                                          num_shards() - 1, num_shards()));
  // It comes too late, and goes on at once.
  On(num_shards() - 1)
      .AllReduce(StreamOf(num_shards() - 1), MatrixView::Dense(&values.back(), DType::kF32, 1, 1));
  Synchronize();
}

TEST_P(SharedMemoryTest, AnAbortEndsTheWaitOfAll) {
  if (num_shards() == 1) GTEST_SKIP() << "nobody waits";
  int32_t value = 1;
  On(0).Min(StreamOf(0), std::span(&value, 1));
  group_->Abort("shard 1 could not start");
  group_->Abort("a later reason");
  Synchronize();
  ASSERT_TRUE(group_->failure());
  EXPECT_THAT(group_->failure()->message, HasSubstr("shard 1 could not start"));
}

}  // namespace
}  // namespace tandem
