#include "collective/lone_shard.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/matrix_view.h"
#include "device/host/host_device.h"

namespace tandem {
namespace {

const std::vector<SumTime> kTimes = {{.size_bytes = 1000, .us = 500}, {.size_bytes = 3000, .us = 700}};

TEST(SumUsTest, LiesBetweenMeasuredSizesAndGrowsBeyond) {
  EXPECT_EQ(SumUs(kTimes, 1), 500);
  EXPECT_EQ(SumUs(kTimes, 1000), 500);
  EXPECT_EQ(SumUs(kTimes, 2000), 600);
  EXPECT_EQ(SumUs(kTimes, 3000), 700);
  EXPECT_EQ(SumUs(kTimes, 6000), 1400);
}

class LoneShardTest : public ::testing::Test {
 protected:
  LoneShardTest() {
    stream_ = device_->CreateStream(StreamKind::kCompute, "compute");
    stamps_ = device_->Allocate(2 * sizeof(uint64_t), MemoryKind::kPinned, "stamps").value();
    group_ = CreateLoneShard(device_.get(), {.num_shards = 3, .times = kTimes}).value();
  }

  // Microseconds that what it enqueues takes.
  template <typename Enqueue>
  double Time(const Enqueue& enqueue) {
    auto* const at = stamps_.as<uint64_t>();
    stream_->Stamp(at);
    enqueue(*group_->Of(0, ShardChannel::kCompute), *stream_);
    stream_->Stamp(at + 1);
    stream_->Synchronize();
    return static_cast<double>(at[1] - at[0]) / 1000;
  }

  std::unique_ptr<Device> device_ = CreateHostDevice({.num_compute_threads = 1});
  std::unique_ptr<Stream> stream_;
  Buffer stamps_;
  std::unique_ptr<CollectiveGroup> group_;
};

TEST_F(LoneShardTest, ASumTakesItsTimeAndAddsNothing) {
  std::vector<float> values(500);
  std::iota(values.begin(), values.end(), 0.0F);
  const std::vector<float> before = values;
  const double us = Time([&](Collective& collective, Stream& stream) {
    collective.AllReduce(stream, MatrixView::Dense(values.data(), DType::kF32, 5, 100));
  });
  EXPECT_GE(us, 590);
  EXPECT_EQ(values, before);
}

TEST_F(LoneShardTest, TheOthersHaveItsColumns) {
  // 2 rows of 8, of which it has 3.
  std::vector<float> values = {1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0};
  Time([&](Collective& collective, Stream& stream) {
    collective.AllGather(stream, MatrixView::Dense(values.data(), DType::kF32, 2, 8), 0, 3);
  });
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 1, 2, 3, 1, 2, 4, 5, 6, 4, 5, 6, 4, 5}));
}

TEST_F(LoneShardTest, SmallExchangesTakeWhatTheSmallestSumTakes) {
  std::vector<int32_t> values = {7, 9};
  const double us = Time([&](Collective& collective, Stream& stream) {
    collective.Min(stream, values);
    collective.Broadcast(stream, values.data(), sizeof(int32_t));
  });
  EXPECT_GE(us, 980);
  EXPECT_EQ(values, (std::vector<int32_t>{7, 9}));
}

TEST_F(LoneShardTest, ItIsTheFirstOfAll) {
  EXPECT_EQ(group_->size(), 3);
  EXPECT_EQ(group_->Of(0, ShardChannel::kRiders)->shard().size, 3);
  EXPECT_FALSE(group_->failure());
  group_->Abort("stopped");
  EXPECT_EQ(group_->failure()->message, "stopped");
}

}  // namespace
}  // namespace tandem
