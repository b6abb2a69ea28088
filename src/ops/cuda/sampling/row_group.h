// The CTAs that sample one row together: a cluster where there are clusters, else one CTA. For .cu files.
#pragma once

#include <cstdint>

#include "ops/cuda/sampling/logit_order.h"

namespace tandem {

constexpr int kRowThreads = 512;  // of a CTA
constexpr int kRowWarps = kRowThreads / 32;
constexpr int kMaxRowCtas = 8;

// Shared memory of the group's collective operations.
struct RowGroupMemory {
  uint64_t warps[kRowWarps];
  uint64_t incoming[2][kMaxRowCtas];
};

// All threads of all CTAs call the collective operations (Sync, Reduce) in the same order. CTA 0 leads.
class RowGroup {
 public:
  __device__ __forceinline__ explicit RowGroup(RowGroupMemory* memory) : memory_(memory) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    rank_ = static_cast<int>(__clusterRelativeBlockRank());
    size_ = static_cast<int>(__clusterSizeInBlocks());
#endif
  }

  __device__ __forceinline__ int rank() const {
    return rank_;
  }
  __device__ __forceinline__ int size() const {
    return size_;
  }

  // A barrier of all threads, behind which what they wrote before, to any memory, is visible to them all.
  __device__ __forceinline__ void Sync() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (size_ > 1) {
      __cluster_barrier_arrive();
      __cluster_barrier_wait();
      return;
    }
#endif
    __syncthreads();
  }

  // Where the CTA `rank` has what lies at `at` in the shared memory of this one.
  template <typename T>
  __device__ __forceinline__ T* Of(int rank, T* at) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (size_ > 1) return static_cast<T*>(__cluster_map_shared_rank(at, static_cast<unsigned>(rank)));
#endif
    return at;
  }

  // Of all threads' values, in every thread. Contains a Sync.
  template <typename Operation>
  __device__ __forceinline__ uint64_t Reduce(uint64_t value, Operation operation) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    value = ReduceWarp(value, operation);
    if (lane == 0) memory_->warps[warp] = value;
    __syncthreads();
    if (warp == 0) {
      value = ReduceWarp(lane < kRowWarps ? memory_->warps[lane] : 0, operation);
      if (lane < size_) *Of(lane, &memory_->incoming[parity_][rank_]) = value;
    }
    Sync();
    uint64_t result = 0;
    for (int i = 0; i < size_; ++i) result = operation(result, memory_->incoming[parity_][i]);
    // The other half next time: by the time this one is written again, all have passed another Sync.
    parity_ ^= 1;
    return result;
  }

  // What CTA `rank` brought to the Reduce just made.
  __device__ __forceinline__ uint64_t PartOf(int rank) const {
    return memory_->incoming[parity_ ^ 1][rank];
  }

 private:
  RowGroupMemory* memory_;
  int rank_ = 0;
  int size_ = 1;
  int parity_ = 0;
};

}  // namespace tandem
