#include "ops/riders.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/riders_testing.h"

namespace tandem {
namespace {

class HostRidersTest : public testing::Test {
 protected:
  HostRidersTest() : device_(CreateHostDevice({.num_compute_threads = 2})), ops_(CreateHostOps()) {
    stream_ = device_->CreateStream(StreamKind::kCompute, "test");
  }
  RiderBackend backend() const { return {device_.get(), ops_.get(), stream_.get()}; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(HostRidersTest, ThoseThatAreDoneJoin) {
  for (const RiderTestShape& shape : RiderTestShapes()) {
    TestRiderBoundaries(backend(), shape);
    if (HasFailure()) return;
  }
}

TEST_F(HostRidersTest, OfTwoShardsThoseJoinThatCanOnBoth) {
  TestRidersDecidedAhead(backend());
}

TEST_F(HostRidersTest, AGraphServesAllContents) {
  TestRiderGraph(backend());
}

TEST_F(HostRidersTest, AGroupJoinsAsAWhole) {
  TestRiderRace(backend(), 30);
}

using HostRidersDeathTest = HostRidersTest;

TEST_F(HostRidersDeathTest, GroupsMustFit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const RiderCapacity capacity = {.num_boundaries = 3,
                                  .max_rows = 8,
                                  .max_groups = 2,
                                  .hidden = 8,
                                  .q_width = 8,
                                  .qkv_width = 16,
                                  .dtype = DType::kBF16,
                                  .product_dtype = DType::kF32};
  const RiderCohort cohort(backend(), capacity, 5);
  const auto check = [&](const std::vector<RiderGroup>& groups) { CheckRiderGroups(groups, capacity); };
  const auto group = [&](int64_t boundary) { return cohort.Group(capacity, boundary, 1, 2); };
  check({group(-1), group(0)});
  check({group(0), group(1)});
  EXPECT_DEATH(check({group(-1), group(0), group(1)}), "3 groups of riders, at most 2");
  EXPECT_DEATH(check({group(0), group(0)}), "10 riders at boundary 0, at most 8");
  EXPECT_DEATH(check({group(1), group(0)}), "boundary 0 after those of 1");
  EXPECT_DEATH(check({group(2)}), "riders of boundary 2: the last is 1");
  RiderGroup wrong = group(0);
  wrong.qkv.dtype = DType::kBF16;
  EXPECT_DEATH(check({wrong}), "qkv .5, 16. bf16, stride 16, wanted .5, 16. fp32");
  wrong = group(0);
  wrong.boundary = -1;
  EXPECT_DEATH(check({wrong}), "attention_out belongs to boundaries from 0 on");
  wrong.boundary = 1;
  EXPECT_DEATH(check({wrong}), "qkv belongs to boundaries before 1");
  RiderArgs args = {.boundary = 0, .row_begin = 1, .num_rows = 5};
  EXPECT_DEATH(CheckRiderGather(args, capacity), "no positions");
  EXPECT_DEATH(CheckRiderScatter(args, capacity), "residual .0, 0. fp32, rows .1, .5.");
}

}  // namespace
}  // namespace tandem
