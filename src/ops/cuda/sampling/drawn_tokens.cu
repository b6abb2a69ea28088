// Drawn tokens for ops behind the sampling, without a way over the host.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/row_launch.h"
#include "ops/cuda/sampling/sampling_kernels.h"

namespace tandem {
namespace {

constexpr int kThreads = 128;

unsigned NumCtas(int64_t num_rows) {
  return static_cast<unsigned>((num_rows + kThreads - 1) / kThreads);
}

// A thread a row.
__global__ void __launch_bounds__(kThreads) CollectDrawnKernel(CollectDrawnArgs args) {
  AllowSuccessors();
  WaitForPredecessors();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= args.num_greedy + args.num_general) return;
  int32_t token = 0;
  if (row < args.num_greedy) {
    uint64_t best = 0;
    for (int part = 0; part < args.parts; ++part) {
      const uint64_t key = args.keys[row * args.parts + part];
      best = key > best ? key : best;
    }
    // As the host has it: all logits are NaN.
    token = best == 0 ? 0 : static_cast<int32_t>(0xffffffffU - static_cast<uint32_t>(best));
  } else {
    token = args.results[row - args.num_greedy].token;
  }
  args.drawn[args.places == nullptr ? row : args.places[row]] = token;
}

__global__ void __launch_bounds__(kThreads) PutDrawnTokensKernel(DrawnTokensArgs args) {
  AllowSuccessors();
  WaitForPredecessors();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= args.num_rows) return;
  const int32_t token = args.token_ids[row];
  if (token < 0) args.token_ids[row] = args.drawn[~token];
}

}  // namespace

void LaunchCollectDrawn(CudaStream& stream, const CollectDrawnArgs& args) {
  const int64_t num_rows = args.num_greedy + args.num_general;
  if (num_rows == 0) return;
  LaunchRowKernel<CollectDrawnKernel>("drawn tokens", NumCtas(num_rows), kThreads, stream, args);
}

void CudaOps::PutDrawnTokens(Stream& stream, const DrawnTokensArgs& args) {
  if (args.num_rows == 0) return;
  TANDEM_CHECK(args.token_ids != nullptr && args.drawn != nullptr, "drawn tokens: {} rows", args.num_rows);
  LaunchRowKernel<PutDrawnTokensKernel>("tokens drawn before", NumCtas(args.num_rows), kThreads,
                                        AsCudaStream(stream), args);
}

}  // namespace tandem
