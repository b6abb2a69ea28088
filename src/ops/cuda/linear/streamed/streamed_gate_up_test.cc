#include <gtest/gtest.h>

#include <cstdint>

#include "ops/cuda/linear/gate_up_test_bench.h"
#include "ops/cuda/linear/linear_runner.h"
#include "ops/cuda/linear/streamed/streamed_linear.h"

namespace tandem {
namespace {

using CudaStreamedGateUpTest = CudaGateUpTest;

TEST_F(CudaStreamedGateUpTest, MatchesDoublePrecision) {
  if (!HasStreamedLinear() || cuda_stream().target().compute_capability != 90) {
    GTEST_SKIP() << "needs compute capability 9.0 and a build with streamed products";
  }
  LinearRunner runner(&device());
  runner.PrepareWorkspace(cuda_stream());
  struct Sizes {
    int64_t mlp, in;
  };
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const Sizes& size : {Sizes{8, 8}, Sizes{64, 64}, Sizes{200, 328}, Sizes{1544, 576}}) {
      for (const bool bias : {false, true}) {
        const Weights weights =
            MakeWeights(ops(), {.mlp = size.mlp, .in = size.in, .dtype = dtype, .bias = bias});
        for (const StreamedLinear kernel : kStreamedLinears) {
          SCOPED_TRACE(StreamedLinearName(kernel));
          for (const int64_t rows : {int64_t{9}, MaxRowsOf(kernel) - 3, MaxRowsOf(kernel)}) {
            Problem problem = MakeProblem(weights, rows, /*x_gap=*/rows % 2 * 8);
            LinearAlgorithm algorithm;
            algorithm.method = LinearMethod::kStreamed;
            algorithm.streamed = kernel;
            const GateUpArgs args = {.x = problem.x.view(),
                                     .weight = weights.weight.get(),
                                     .scratch = problem.scratch.view(),
                                     .y = problem.out()};
            ASSERT_TRUE(runner.RunGateUp(cuda_stream(), args, algorithm));
            ExpectResult(weights, problem, /*fused=*/true);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
