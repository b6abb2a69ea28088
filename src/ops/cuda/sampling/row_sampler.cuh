// Sampling a row in every way that a request can ask for. For .cu files.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "ops/cuda/sampling/row_selection.cuh"

namespace tandem {

class RowSampler : private RowSelector {
 public:
  // slice: the logits of tokens [begin, begin + length), in shared or global memory.
  __device__ __forceinline__ RowSampler(SampleMemory* memory, float* slice, int begin, int length,
                                        const RowGroup& group)
      : RowSelector(memory, slice, begin, length, group), row_(memory->row) {}

  // kMasked: rows may have a mask. Without, nothing is left of it in the code.
  template <bool kMasked>
  __device__ __forceinline__ void Run(const SampleRowsArgs& args) {
    bool changed = false;
    int token = row_.forced_token;
    if (token < 0) {
      ChangedToken* entries = args.entries + row_.first_entry;
      changed = row_.table_capacity > 0;
      if (changed) ChangeLogits(args.lists, entries);
      if (kMasked && row_.first_allowed >= 0)
        allowed_ = reinterpret_cast<const uint32_t*>(args.lists + row_.first_allowed);
      uint64_t top = TopKey();
      // Everything is banned: better a banned token than none, and one that is allowed if there is any.
      if (changed && IsOutOfTheQuestion(top)) {
        RestoreLogits(entries);
        changed = false;
        top = TopKey();
      }
      if (kMasked && allowed_ != nullptr && IsOutOfTheQuestion(top)) {
        allowed_ = nullptr;
        top = TopKey();
      }
      token = row_.draws != 0 && IsFinite(LogitOfKey(top)) ? Draw(top) : TokenOfKey(top);
      if (changed && row_.num_top >= 0) RestoreLogits(entries);
      if (kMasked) allowed_ = nullptr;  // log-probabilities are those of all
    }
    SampleRowResult* result = args.results + static_cast<int>(blockIdx.x) / group_.size();
    if (row_.num_top >= 0) AddLogprobs(token, args.tops + row_.first_top, result);
    if (IsLeader()) result->token = token;
  }

 private:
  __device__ __forceinline__ static bool IsOutOfTheQuestion(uint64_t key) {
    return key < kLowestKey + (uint64_t{1} << 32);
  }

  // --- logit bias, banned tokens, penalties

  // The table's entry of a token, made if there is none.
  __device__ __forceinline__ ChangedToken* EntryOf(int token, ChangedToken* entries) const {
    const uint32_t mask = static_cast<uint32_t>(row_.table_capacity) - 1;
    const uint32_t wanted = static_cast<uint32_t>(token) + 1;
    uint32_t at = wanted * 0x9e3779b1U >> 7 & mask;
    for (;; at = (at + 1) & mask) {
      const uint32_t there = atomicCAS(&entries[at].token_plus_1, 0U, wanted);
      if (there == 0 || there == wanted) return entries + at;
    }
  }

  // The CTAs share the row's table; each enters the tokens of its slice and goes on with these.
  __device__ __forceinline__ void ChangeLogits(const int32_t* lists, ChangedToken* entries) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = group_.rank() * kRowThreads + thread; i < row_.table_capacity;
         i += group_.size() * kRowThreads) {
      entries[i] = ChangedToken{0, 0, 0.0F, 0.0F};
    }
    group_.Sync();
    for (int i = thread; i < row_.num_bias; i += kRowThreads) {
      const int token = lists[row_.first_bias + 2 * i];
      const float bias = __int_as_float(lists[row_.first_bias + 2 * i + 1]);
      if (InSlice(token)) atomicAdd(&EntryOf(token, entries)->bias, bias);
    }
    for (int i = thread; i < row_.num_banned; i += kRowThreads) {
      const int token = lists[row_.first_banned + i];
      if (InSlice(token)) atomicOr(&EntryOf(token, entries)->marks, 2U);
    }
    for (int i = thread; i < row_.num_output; i += kRowThreads) {
      const int token = lists[row_.first_output + i];
      if (InSlice(token)) atomicAdd(&EntryOf(token, entries)->marks, 4U);
    }
    for (int i = thread; i < row_.num_prompt; i += kRowThreads) {
      const int token = lists[row_.first_prompt + i];
      if (InSlice(token)) atomicOr(&EntryOf(token, entries)->marks, 1U);
    }
    __syncthreads();
    ForEachEntry(entries, [&](ChangedToken* entry, uint4 values, float* logit) {
      const float raw = *logit;
      entry->raw = raw;
      const uint32_t marks = values.y;
      float value = raw + __uint_as_float(values.z);
      if ((marks & 2U) != 0) value = -__builtin_huge_valf();
      if ((marks & ~2U) != 0) {
        value = value > 0.0F ? value / row_.repetition_penalty : value * row_.repetition_penalty;
        const uint32_t times = marks >> 2;
        if (times > 0) {
          value -= __fmul_rn(row_.frequency_penalty, static_cast<float>(times));
          value -= row_.presence_penalty;
        }
      }
      *logit = value;
    });
    __syncthreads();
  }

  __device__ __forceinline__ void RestoreLogits(ChangedToken* entries) {
    __syncthreads();  // a logit may still be read in a walk over the slice
    ForEachEntry(entries,
                 [&](ChangedToken*, uint4 values, float* logit) { *logit = __uint_as_float(values.w); });
    __syncthreads();
  }

  // function(entry, its values, the logit) of every entry whose token is in the slice. The values are read
  // past the first-level cache: they were made by atomic operations.
  template <typename Function>
  __device__ __forceinline__ void ForEachEntry(ChangedToken* entries, Function&& function) {
    for (int i = static_cast<int>(threadIdx.x); i < row_.table_capacity; i += kRowThreads) {
      const uint4 values = __ldcg(reinterpret_cast<const uint4*>(entries + i));
      const int token = static_cast<int>(values.x) - 1;
      if (values.x != 0 && InSlice(token)) function(entries + i, values, slice_ + (token - begin_));
    }
  }

  // --- the draw

  __device__ __forceinline__ int Draw(uint64_t top) {
    max_ = LogitOfKey(top);
    inverse_temperature_ = 1.0F / row_.temperature;
    const float bound = fmaxf(-FLT_MAX, fminf(max_, max_ + row_.min_p_offset));
    uint64_t cut = static_cast<uint64_t>(OrderOf(bound)) << 32;  // keys from here on are kept
    if (row_.top_k > 0) {
      const uint64_t kth = Select(/*by_weight=*/false, top, cut, static_cast<uint64_t>(row_.top_k));
      cut = Maximum()(cut, kth >> 32 << 32);  // equals of the k-th stay
    }
    if (row_.top_p < 1.0F) {
      uint64_t sum = 0;
      ForEach([&](float logit, int token) {
        if (KeyOf(logit, token) >= cut) sum += WeightOf(logit);
      });
      sum = group_.Reduce(sum, Sum());
      const double wanted = ceil(static_cast<double>(fmaxf(0.0F, row_.top_p)) * static_cast<double>(sum));
      const uint64_t needed = min(static_cast<unsigned long long>(sum), max(1ULL, __double2ull_rz(wanted)));
      cut = Select(/*by_weight=*/true, top, cut, needed);
    }
    return Walk(cut);
  }

  __device__ __forceinline__ uint64_t WeightIfKept(int at, uint64_t cut) const {
    const float logit = LogitAt(at);
    return KeyOf(logit, begin_ + at) >= cut ? WeightOf(logit) : 0;
  }

  // The token, in the order of their ids, at which the weights of keys >= cut pass uniform * their sum. The
  // top key is among them, so that there is one.
  __device__ __forceinline__ int Walk(uint64_t cut) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int segment = (length_ + kRowThreads - 1) / kRowThreads * 32;
    const int from = min(length_, warp * segment);
    const int to = min(length_, from + segment);
    uint64_t sum = 0;
#pragma unroll 4
    for (int i = from + lane; i < to; i += 32) sum += WeightIfKept(i, cut);
    sum = ReduceWarp(sum, Sum());
    if (lane == 0) memory_->segments[warp] = sum;
    const uint64_t total = group_.Reduce(lane == 0 ? sum : 0, Sum());
    uint64_t left = min(static_cast<unsigned long long>(total - 1),
                        __double2ull_rz(row_.uniform * static_cast<double>(total)));
    bool here = true;  // in this warp's segment
    for (int i = 0; i < group_.rank(); ++i) here = here && TakePart(group_.PartOf(i), &left);
    for (int i = 0; i < warp; ++i) here = here && TakePart(memory_->segments[i], &left);
    if (here && left < sum) {
      for (int base = from; base < to; base += 32) {
        uint64_t passed = base + lane < to ? WeightIfKept(base + lane, cut) : 0;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
          const uint64_t before = __shfl_up_sync(~0U, static_cast<unsigned long long>(passed), distance);
          if (lane >= distance) passed += before;
        }
        const uint32_t past = __ballot_sync(~0U, passed > left);
        if (past != 0) {
          const int token = begin_ + base + __ffs(static_cast<int>(past)) - 1;
          if (lane < group_.size()) *group_.Of(lane, &memory_->broadcast) = static_cast<uint64_t>(token);
          break;
        }
        left -= __shfl_sync(~0U, static_cast<unsigned long long>(passed), 31);
      }
    }
    group_.Sync();
    return static_cast<int>(memory_->broadcast);
  }

  // Passes a part of the weights; false if what is looked for lies in it.
  __device__ __forceinline__ static bool TakePart(uint64_t part, uint64_t* left) {
    if (*left < part) return false;
    *left -= part;
    return true;
  }

  // --- log-probabilities

  __device__ __forceinline__ void AddLogprobs(int token, TopLogit* tops, SampleRowResult* result) {
    const uint64_t top = TopKey();
    max_ = LogitOfKey(top);
    const bool own = threadIdx.x == 0 && InSlice(token);
    constexpr uint64_t kPresent = uint64_t{1} << 32;
    const float logit = __uint_as_float(static_cast<uint32_t>(
        group_.Reduce(own ? kPresent | __float_as_uint(slice_[own ? token - begin_ : 0]) : 0, Maximum())));
    const bool finite = IsFinite(max_);
    uint64_t sum = 0;
    uint64_t num_better = 0;
    ForEach([&](float other, int) {
      if (finite && other >= -FLT_MAX) sum += Weight(other, max_, 1.0F);
      if (other > logit) ++num_better;
    });
    sum = group_.Reduce(sum, Sum());
    num_better = group_.Reduce(num_better, Sum());
    int num_top = 0;
    if (row_.num_top > 0 && top >= kLowestKey) {
      const uint64_t cut = Select(/*by_weight=*/false, top, kLowestKey, static_cast<uint64_t>(row_.num_top));
      MakeList([&](float, uint64_t key) { return key >= cut; });
      if (group_.rank() == 0) {
        num_top = static_cast<int>(memory_->list_size);
        for (int i = static_cast<int>(threadIdx.x); i < num_top; i += kRowThreads) {
          const uint64_t key = memory_->list[i];
          tops[i] = {TokenOfKey(key), LogitOfKey(key)};
        }
      }
    }
    if (IsLeader()) {
      result->rank = 1 + static_cast<int32_t>(num_better);
      result->logit = logit;
      result->max_logit = max_;
      result->sum = sum;
      result->num_top = num_top;
    }
  }

  const SampleRowParams& row_;
};

}  // namespace tandem
