// Finding places in the order of a row's logits. For .cu files.
//
// A row is cut into slices of consecutive tokens, one for each CTA of a cluster. top_k and top_p need the
// place of a logit in the order of all. It is found without sorting them: counts (and weights) of bins of the
// range in question say in which bin it lies; that bin is the next range, until it has few enough logits to
// sort. Weights are integers and a key is a logit with its token, so that sums and order are exact and
// nothing depends on which thread comes first.
#pragma once

#include <cfloat>
#include <cstdint>

#include "ops/cuda/sampling/logit_order.h"
#include "ops/cuda/sampling/row_group.h"
#include "ops/cuda/sampling/sampling_kernels.h"

namespace tandem {

constexpr int kBins = kRowThreads;  // one a thread
constexpr int kBinBits = 9;
constexpr int kListCapacity = kMaxTopLogits;
// The first bins are equal parts of so many nats below the largest logit.
constexpr float kLinearRange = 32.0F;
constexpr uint64_t kLowestKey = static_cast<uint64_t>(kOrderOfNegativeInfinity) << 32;  // all but NaN
constexpr uint64_t kNoBin = ~uint64_t{0};

static_assert(kBins == 1 << kBinBits && kListCapacity == 2 * kRowThreads);

struct Bins {
  uint32_t counts[kBins];
  uint32_t weights_low[kBins];
  uint32_t weights_high[kBins];
};

struct SampleMemory {
  RowGroupMemory group;
  union {
    Bins bins;
    uint64_t list[kListCapacity];  // the leader's: keys of one range, best first once they are sorted
  };
  uint64_t scanned_warps[kRowWarps];
  uint64_t segments[kRowWarps];  // weights of the slice's part that a warp goes over
  uint64_t found_bin;
  uint64_t above_found_bin;
  uint64_t count_of_found_bin;
  uint64_t broadcast;
  uint32_t list_size;  // the leader's
  SampleRowParams row;
};

// exp((logit - max) * inverse_temperature), for logits up to max.
__device__ __forceinline__ uint64_t Weight(float logit, float max, float inverse_temperature) {
  const float weight = __expf((logit - max) * inverse_temperature);
  return __float2ull_rn(fminf(weight, 1.0F) * static_cast<float>(kWeightOne));
}

__device__ __forceinline__ bool IsFinite(float value) {
  return fabsf(value) <= FLT_MAX;
}

// A slice of a row, and the collective operations of the CTAs that have the row's slices.
class RowSelector {
 public:
  // slice: the logits of tokens [begin, begin + length), in shared or global memory.
  __device__ __forceinline__ RowSelector(SampleMemory* memory, float* slice, int begin, int length,
                                         const RowGroup& group)
      : memory_(memory), slice_(slice), begin_(begin), length_(length), group_(group) {}

 protected:
  __device__ __forceinline__ bool IsLeader() const { return group_.rank() == 0 && threadIdx.x == 0; }

  // -inf where the mask leaves the token out.
  __device__ __forceinline__ float LogitAt(int at) const {
    if (allowed_ != nullptr) {
      const auto token = static_cast<uint32_t>(begin_ + at);
      if ((allowed_[token / 32] >> (token % 32) & 1U) == 0) return -__builtin_huge_valf();
    }
    return slice_[at];
  }

  // function(logit, token) of all logits of the slice, spread over the CTA's threads.
  template <typename Function>
  __device__ __forceinline__ void ForEach(Function&& function) const {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < length_; i += kRowThreads) {
      function(LogitAt(i), begin_ + i);
    }
  }

  __device__ __forceinline__ uint64_t TopKey() {
    uint64_t top = 0;
    ForEach([&](float logit, int token) { top = Maximum()(top, KeyOf(logit, token)); });
    return group_.Reduce(top, Maximum());
  }

  __device__ __forceinline__ bool InSlice(int token) const {
    return static_cast<uint32_t>(token - begin_) < static_cast<uint32_t>(length_);
  }

  __device__ __forceinline__ uint64_t WeightOf(float logit) const {
    return Weight(logit, max_, inverse_temperature_);
  }

  // The key, among those in [cut, top] and best first, at which their number (or their weight) reaches
  // needed, which is at least 1; cut if it does not. top: the largest key of the row.
  __device__ __forceinline__ uint64_t Select(bool by_weight, uint64_t top, uint64_t cut, uint64_t needed) {
    uint64_t high = top;  // it lies in [low, high]
    uint64_t low = cut;
    uint64_t above = 0;  // number or weight of what is better
    const float max = LogitOfKey(top);
    const float bins_per_unit =
        static_cast<float>(kBins) / kLinearRange * (by_weight ? inverse_temperature_ : 1.0F);
    const auto linear_bin = [&](float logit) { return __float2uint_rz((max - logit) * bins_per_unit); };
    if (IsFinite(max)) {
      ClearBins();
      ForEach([&](float logit, int token) {
        const uint64_t key = KeyOf(logit, token);
        const uint32_t bin = linear_bin(logit);
        if (key >= low && bin < kBins) AddToBin(bin, by_weight, logit);
      });
      const uint64_t sum = FindBin(by_weight, above, needed);
      const uint64_t found = memory_->found_bin;
      const auto in_bin = [&](float logit, uint64_t key) {
        const uint32_t bin = linear_bin(logit);
        return key >= low && (found == kNoBin ? bin >= kBins : bin == found);
      };
      if (found == kNoBin) {
        above += sum;
      } else {
        above = memory_->above_found_bin;
        if (memory_->count_of_found_bin <= kListCapacity)
          return SelectInList(by_weight, above, needed, in_bin);
      }
      uint64_t best = 0;
      uint64_t worst = 0;  // of the complements
      ForEach([&](float logit, int token) {
        const uint64_t key = KeyOf(logit, token);
        if (!in_bin(logit, key)) return;
        best = Maximum()(best, key);
        worst = Maximum()(worst, ~key);
      });
      best = group_.Reduce(best, Maximum());
      worst = group_.Reduce(worst, Maximum());
      if (best == 0) return cut;
      high = best;
      low = ~worst;
    }
    for (;;) {
      const int range_bits = 64 - __clzll(static_cast<long long>(high - low));
      const int shift = range_bits > kBinBits ? range_bits - kBinBits : 0;
      ClearBins();
      ForEach([&](float logit, int token) {
        const uint64_t key = KeyOf(logit, token);
        if (key >= low && key <= high)
          AddToBin(static_cast<uint32_t>((high - key) >> shift), by_weight, logit);
      });
      FindBin(by_weight, above, needed);
      if (memory_->found_bin == kNoBin) return cut;
      above = memory_->above_found_bin;
      high -= memory_->found_bin << shift;
      const uint64_t width = (uint64_t{1} << shift) - 1;
      if (high - low > width) low = high - width;
      if (memory_->count_of_found_bin <= kListCapacity) {
        return SelectInList(by_weight, above, needed,
                            [&](float, uint64_t key) { return key >= low && key <= high; });
      }
    }
  }

  __device__ __forceinline__ void ClearBins() {
    group_.Sync();  // others may still read the bins
    Bins& bins = memory_->bins;
    bins.counts[threadIdx.x] = 0;
    bins.weights_low[threadIdx.x] = 0;
    bins.weights_high[threadIdx.x] = 0;
    __syncthreads();
  }

  __device__ __forceinline__ void AddToBin(uint32_t bin, bool by_weight, float logit) {
    Bins& bins = memory_->bins;
    atomicAdd(&bins.counts[bin], 1U);
    if (!by_weight) return;
    const uint64_t weight = WeightOf(logit);
    const auto low = static_cast<uint32_t>(weight);
    // Shared memory adds 32 bits at a time; whoever makes the low half overflow carries.
    const uint32_t before = atomicAdd(&bins.weights_low[bin], low);
    const uint32_t high = static_cast<uint32_t>(weight >> 32) + (before + low < before ? 1U : 0U);
    if (high != 0) atomicAdd(&bins.weights_high[bin], high);
  }

  // The bin, of all CTAs together, in which the sum from `above` on reaches needed, into found_bin,
  // above_found_bin and count_of_found_bin. Returns the sum of all bins.
  __device__ __forceinline__ uint64_t FindBin(bool by_weight, uint64_t above, uint64_t needed) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = thread / 32;
    if (thread == 0) memory_->found_bin = kNoBin;
    group_.Sync();
    uint64_t count = 0;
    uint64_t amount = 0;
    for (int i = 0; i < group_.size(); ++i) {
      const Bins* bins = group_.Of(i, &memory_->bins);
      count += bins->counts[thread];
      if (by_weight) {
        amount += static_cast<uint64_t>(bins->weights_high[thread]) << 32 | bins->weights_low[thread];
      }
    }
    if (!by_weight) amount = count;
    uint64_t passed = amount;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint64_t before = __shfl_up_sync(~0U, static_cast<unsigned long long>(passed), distance);
      if (lane >= distance) passed += before;
    }
    if (lane == 31) memory_->scanned_warps[warp] = passed;
    __syncthreads();
    uint64_t sum = 0;
    uint64_t before = 0;
    for (int i = 0; i < kRowWarps; ++i) {
      if (i == warp) before = sum;
      sum += memory_->scanned_warps[i];
    }
    passed += above + before;
    if (passed >= needed && passed - amount < needed) {
      memory_->found_bin = static_cast<uint64_t>(thread);
      memory_->above_found_bin = passed - amount;
      memory_->count_of_found_bin = count;
    }
    __syncthreads();
    return sum;
  }

  // Puts all keys that predicate(logit, key) is true for, at most kListCapacity, into the leader's list, best
  // first. Behind it the leader's threads may read the list until the next Sync.
  template <typename Predicate>
  __device__ __forceinline__ void MakeList(Predicate&& predicate) {
    if (IsLeader()) memory_->list_size = 0;
    group_.Sync();  // and nobody reads the leader's bins any more
    uint32_t* size = group_.Of(0, &memory_->list_size);
    uint64_t* list = group_.Of(0, &memory_->list[0]);
    ForEach([&](float logit, int token) {
      const uint64_t key = KeyOf(logit, token);
      if (!predicate(logit, key)) return;
      const uint32_t at = atomicAdd(size, 1U);
      if (at < kListCapacity) list[at] = key;
    });
    group_.Sync();
    if (group_.rank() == 0) SortList();
  }

  // Bitonic, with zeros up to a power of two.
  __device__ __forceinline__ void SortList() {
    uint64_t* list = memory_->list;
    const int thread = static_cast<int>(threadIdx.x);
    const int count = static_cast<int>(min(memory_->list_size, static_cast<uint32_t>(kListCapacity)));
    int padded = 2;
    while (padded < count) padded *= 2;
    for (int i = count + thread; i < padded; i += kRowThreads) list[i] = 0;
    __syncthreads();
    for (int width = 2; width <= padded; width *= 2) {
      for (int distance = width / 2; distance > 0; distance /= 2) {
        if (thread < padded / 2) {
          const int a = thread / distance * 2 * distance + thread % distance;
          const int b = a + distance;
          const bool falling = (a & width) == 0;
          const uint64_t key_a = list[a];
          const uint64_t key_b = list[b];
          if ((key_a < key_b) == falling) {
            list[a] = key_b;
            list[b] = key_a;
          }
        }
        __syncthreads();
      }
    }
  }

  template <typename Predicate>
  __device__ __forceinline__ uint64_t SelectInList(bool by_weight, uint64_t above, uint64_t needed,
                                                   Predicate&& predicate) {
    MakeList(predicate);
    if (group_.rank() == 0) {
      const uint64_t wanted = needed - above;  // at least 1
      if (by_weight) {
        ScanListWeights(wanted);
      } else if (threadIdx.x == 0) {
        memory_->found_bin = wanted - 1;
      }
      __syncthreads();
      if (static_cast<int>(threadIdx.x) < group_.size()) {
        *group_.Of(static_cast<int>(threadIdx.x), &memory_->broadcast) = memory_->list[memory_->found_bin];
      }
    }
    group_.Sync();
    return memory_->broadcast;
  }

  // found_bin = the place in the list at which the weights reach wanted. A thread has two neighbours.
  __device__ __forceinline__ void ScanListWeights(uint64_t wanted) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32;
    const int warp = thread / 32;
    const int count = static_cast<int>(memory_->list_size);
    const uint64_t first = 2 * thread < count ? WeightOf(LogitOfKey(memory_->list[2 * thread])) : 0;
    const uint64_t second = 2 * thread + 1 < count ? WeightOf(LogitOfKey(memory_->list[2 * thread + 1])) : 0;
    uint64_t passed = first + second;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint64_t before = __shfl_up_sync(~0U, static_cast<unsigned long long>(passed), distance);
      if (lane >= distance) passed += before;
    }
    if (lane == 31) memory_->scanned_warps[warp] = passed;
    if (thread == 0) memory_->found_bin = static_cast<uint64_t>(count) - 1;
    __syncthreads();
    for (int i = 0; i < warp; ++i) passed += memory_->scanned_warps[i];
    const uint64_t before = passed - first - second;
    if (before < wanted && passed >= wanted) {
      memory_->found_bin = static_cast<uint64_t>(2 * thread + (before + first >= wanted ? 0 : 1));
    }
  }

  SampleMemory* memory_;
  float* slice_;
  int begin_;
  int length_;
  RowGroup group_;
  const uint32_t* allowed_ = nullptr;  // mask of the vocabulary; null: every token
  // Set before weights are asked for.
  float max_ = 0.0F;
  float inverse_temperature_ = 1.0F;
};

}  // namespace tandem
