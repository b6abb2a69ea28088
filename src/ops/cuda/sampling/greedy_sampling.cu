#include <algorithm>
#include <climits>

#include "ops/cuda/row_access.h"
#include "ops/cuda/row_launch.h"
#include "ops/cuda/sampling/logit_order.h"
#include "ops/cuda/sampling/sampling_kernels.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsInFlight = 4;
constexpr int64_t kMinPart = int64_t{kThreads} * 4 * kVectorsInFlight;

// The best of what a thread has seen. Tokens come in falling order, so that of equals the lowest remains, and
// -inf is taken but NaN is not.
struct Best {
  float logit = -__builtin_huge_valf();
  int token = INT_MAX;

  __device__ __forceinline__ void See(float other, int other_token) {
    if (other >= logit) {
      logit = other;
      token = other_token;
    }
  }
  __device__ __forceinline__ void See(float4 others, int first_token) {
    See(others.w, first_token + 3);
    See(others.z, first_token + 2);
    See(others.y, first_token + 1);
    See(others.x, first_token);
  }
};

// part_length: a multiple of 4.
template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    GreedyKernel(const float* logits, int64_t stride, int vocab, const int32_t* rows, int parts,
                 int part_length, uint64_t* keys) {
  __shared__ uint64_t warps[kThreads / 32];
  AllowSuccessors();
  const int thread = static_cast<int>(threadIdx.x);
  const int number = static_cast<int>(blockIdx.x) / parts;
  const int begin = (static_cast<int>(blockIdx.x) % parts) * part_length;
  const int end = min(vocab, begin + part_length);
  WaitForPredecessors();
  const float* row = logits + (rows != nullptr ? rows[number] : number) * stride;
  Best best;
  if constexpr (kVectors) {
    const int num_vectors = max(0, end - begin) / 4;
    const int tail = begin + num_vectors * 4 + thread;
    if (tail < end) best.See(row[tail], tail);
    const float4* vectors = reinterpret_cast<const float4*>(row + begin);
    int i = thread + (num_vectors - thread + kThreads - 1) / kThreads * kThreads - kThreads;
    if (thread >= num_vectors) i = -1;
    for (; i >= (kVectorsInFlight - 1) * kThreads; i -= kVectorsInFlight * kThreads) {
      float4 loaded[kVectorsInFlight];
#pragma unroll
      for (int j = 0; j < kVectorsInFlight; ++j) loaded[j] = vectors[i - j * kThreads];
#pragma unroll
      for (int j = 0; j < kVectorsInFlight; ++j) best.See(loaded[j], begin + (i - j * kThreads) * 4);
    }
    for (; i >= 0; i -= kThreads) best.See(vectors[i], begin + i * 4);
  } else {
    const int length = end - begin;
    if (thread < length) {
      for (int i = thread + (length - thread - 1) / kThreads * kThreads; i >= 0; i -= kThreads) {
        best.See(row[begin + i], begin + i);
      }
    }
  }
  uint64_t key = best.token == INT_MAX ? 0 : KeyOf(best.logit, best.token);
  key = ReduceWarp(key, Maximum());
  if (thread % 32 == 0) warps[thread / 32] = key;
  __syncthreads();
  if (thread >= 32) return;
  key = ReduceWarp(thread < kThreads / 32 ? warps[thread] : 0, Maximum());
  if (thread == 0) keys[blockIdx.x] = key;
}

}  // namespace

int GreedyParts(const CudaTarget& target, int64_t num_rows, int64_t vocab) {
  const int64_t wanted = (int64_t{4} * target.num_sms + num_rows - 1) / num_rows;
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, vocab / kMinPart)));
}

void LaunchGreedy(CudaStream& stream, const MatrixView& logits, const int32_t* rows, int64_t num_rows,
                  int parts, uint64_t* keys) {
  const auto part_length = static_cast<int>(CeilDivide(logits.cols, int64_t{4} * parts) * 4);
  const auto launch = [&]<bool kVectors>() {
    LaunchRowKernel<GreedyKernel<kVectors>>("sample greedy", static_cast<unsigned>(num_rows * parts),
                                            kThreads, stream, static_cast<const float*>(logits.data),
                                            logits.row_stride, static_cast<int>(logits.cols), rows, parts,
                                            part_length, keys);
  };
  RowsAligned16(logits) ? launch.template operator()<true>() : launch.template operator()<false>();
}

}  // namespace tandem
