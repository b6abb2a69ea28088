#include "ops/cuda/riders/riders.h"

#include <gtest/gtest.h>

#include "ops/cuda/cuda_op_test_bench.h"
#include "ops/riders_testing.h"

namespace tandem {
namespace {

class CudaRidersTest : public CudaOpTest {
 protected:
  RiderBackend backend() { return {&device(), &ops(), &stream()}; }
};

TEST_F(CudaRidersTest, ThoseThatAreDoneJoin) {
  for (const RiderTestShape& shape : RiderTestShapes()) {
    TestRiderBoundaries(backend(), shape);
    if (HasFailure()) return;
  }
}

TEST_F(CudaRidersTest, OfTwoShardsThoseJoinThatCanOnBoth) {
  TestRidersDecidedAhead(backend());
}

TEST_F(CudaRidersTest, AGraphServesAllContents) {
  TestRiderGraph(backend());
}

TEST_F(CudaRidersTest, AGroupJoinsAsAWhole) {
  TestRiderRace(backend(), 200);
}

}  // namespace
}  // namespace tandem
