// Merging of what several warps and CTAs have of one (sequence, kv head).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/attention/attention_plan_layout.h"
#include "ops/cuda/attention/decode_attention_kernel.h"
#include "ops/cuda/attention/decode_mma.cuh"

namespace tandem {
namespace decode {

// What a warp has of one (sequence, kv head) and cannot finish alone.
enum SlotFlags { kSlotUsed = 1, kSlotStarts = 2, kSlotEnds = 4 };

// A partial result in shared memory.
struct Slot {
  float* data;
  int group;
  template <int kHeadDim>
  __device__ __forceinline__ float* Row(int head) const {
    return data + head * DecodeSlotStride(kHeadDim);
  }
  template <int kHeadDim>
  __device__ __forceinline__ float* Max() const {
    return data + group * DecodeSlotStride(kHeadDim);
  }
  template <int kHeadDim>
  __device__ __forceinline__ float* Sum() const {
    return data + group * (DecodeSlotStride(kHeadDim) + 1);
  }
};

__device__ __forceinline__ void Accumulate(float4* sum, float weight, const float4& value) {
  sum->x += weight * value.x;
  sum->y += weight * value.y;
  sum->z += weight * value.z;
  sum->w += weight * value.w;
}

template <typename T>
__device__ __forceinline__ void StoreOutput(T* destination, const float4& value, float sum) {
  const float scale = 1.0F / sum;
  uint2 packed;
  packed.x = PackPair<T>(value.x * scale, value.y * scale);
  packed.y = PackPair<T>(value.z * scale, value.w * scale);
  *reinterpret_cast<uint2*>(destination) = packed;
}

// A (sequence, kv head) that several CTAs share.
struct SharedHead {
  int row;
  int kv_head;
  int first_cta;
  int last_cta;

  __device__ __forceinline__ SharedHead(const AttentionPlanSequence* sequences, const int4& meta, int window,
                                        int places_per_cta) {
    const int4 planned = __ldcg(reinterpret_cast<const int4*>(sequences + meta.x));
    const int tiles = NumDecodeTiles(planned.y, window);
    const int begin = planned.w + meta.y * (tiles + kDecodeHeadPlaces);
    row = planned.x;
    kv_head = meta.y;
    first_cta = begin / places_per_cta;
    last_cta = (begin + tiles - 1) / places_per_cta;
  }
};

// Merges the slots of the CTA, in the order of the line; what other CTAs share goes through the workspace.
template <typename T, int kHeadDim>
__device__ __forceinline__ void MergeSlots(const DecodeAttentionParams& params, int places_per_cta,
                                           const AttentionPlanSequence* sequences, const int4* metas,
                                           int* is_last, float* rings, int ring_floats, float* slots) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int num_slots = static_cast<int>(blockDim.x / 32) * 2;
  const int group = params.group;
  const int slot_floats = DecodeSlotFloats(kHeadDim, group);
  const int partial_floats = DecodePartialFloats(kHeadDim, group);
  const int elements = group * kHeadDim / 4;
  const auto slot_of = [&](int index) {
    const int warp = index / 2;
    return Slot{index % 2 == 0 ? slots + warp * slot_floats : rings + warp * ring_floats, group};
  };
  const auto output = [&](int row, int kv_head) {
    return static_cast<T*>(params.out) + row * params.out_stride +
           static_cast<int64_t>(kv_head) * group * kHeadDim;
  };
  const auto partial_of = [&](int cta, int which) {
    return params.partials + static_cast<int64_t>(cta * 2 + which) * partial_floats;
  };

  // Runs of slots of the same (sequence, kv head), found by every warp for itself.
  const int4 meta = lane < num_slots ? metas[lane] : make_int4(0, 0, 0, 0);
  const bool used = (meta.z & kSlotUsed) != 0;
  const unsigned used_mask = __ballot_sync(kAllLanes, used);
  if (used_mask == 0) return;
  const unsigned before = used_mask & ((1U << lane) - 1U);
  const int previous = before != 0 ? 31 - __clz(static_cast<int>(before)) : lane;
  const int previous_sequence = __shfl_sync(kAllLanes, meta.x, previous);
  const int previous_head = __shfl_sync(kAllLanes, meta.y, previous);
  const bool begins_run = used && (before == 0 || previous_sequence != meta.x || previous_head != meta.y);
  const unsigned run_mask = __ballot_sync(kAllLanes, begins_run);
  const int num_runs = __popc(run_mask);

  for (int task = static_cast<int>(threadIdx.x); task < num_runs * elements;
       task += static_cast<int>(blockDim.x)) {
    const int element = task % elements;
    unsigned from_run = run_mask;
    for (int run = task / elements; run > 0; --run) from_run &= from_run - 1;
    const int first = __ffs(static_cast<int>(from_run)) - 1;
    const unsigned behind = from_run & (from_run - 1);
    // Slots from first up to the next run.
    unsigned in_run = used_mask & ~((1U << first) - 1U);
    if (behind != 0) in_run &= (behind & (0U - behind)) - 1U;
    const int last = 31 - __clz(static_cast<int>(in_run));
    const int head = element * 4 / kHeadDim;
    const int d = element * 4 % kHeadDim;

    float max = kMinusInfinity;
    for (unsigned left = in_run; left != 0; left &= left - 1) {
      max = fmaxf(max, slot_of(__ffs(static_cast<int>(left)) - 1).template Max<kHeadDim>()[head]);
    }
    float4 value = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    float sum = 0.0F;
    for (unsigned left = in_run; left != 0; left &= left - 1) {
      const Slot slot = slot_of(__ffs(static_cast<int>(left)) - 1);
      const float weight = Exp2(slot.template Max<kHeadDim>()[head] - max);
      sum += weight * slot.template Sum<kHeadDim>()[head];
      Accumulate(&value, weight, *reinterpret_cast<const float4*>(slot.template Row<kHeadDim>(head) + d));
    }
    const int4 first_meta = metas[first];
    const bool starts = (first_meta.z & kSlotStarts) != 0;
    if (starts && (metas[last].z & kSlotEnds) != 0) {
      StoreOutput(output(first_meta.w, first_meta.y) + head * kHeadDim + d, value, sum);
    } else {
      float* partial = partial_of(static_cast<int>(blockIdx.x), starts ? 1 : 0);
      *reinterpret_cast<float4*>(partial + head * kHeadDim + d) = value;
      if (d == 0) {
        partial[group * kHeadDim + head] = max;
        partial[group * (kHeadDim + 1) + head] = sum;
      }
    }
  }

  // A CTA shares at most two: the one that began before it, and the one that goes on behind it.
  const int4 front = metas[__ffs(static_cast<int>(used_mask)) - 1];
  const bool continues = (front.z & kSlotStarts) == 0;
  const int4 back_first = metas[31 - __clz(static_cast<int>(run_mask))];
  const int4 back_last = metas[31 - __clz(static_cast<int>(used_mask))];
  const bool continued = (back_first.z & kSlotStarts) != 0 && (back_last.z & kSlotEnds) == 0;
  if (!continues && !continued) return;

  const SharedHead front_head(sequences, front, params.window, places_per_cta);
  const SharedHead back_head(sequences, back_first, params.window, places_per_cta);
  __syncthreads();
  if (threadIdx.x < 2) {
    const bool is_front = threadIdx.x == 0;
    const int first_cta = is_front ? front_head.first_cta : back_head.first_cta;
    const int last_cta = is_front ? front_head.last_cta : back_head.last_cta;
    bool last = false;
    if (is_front ? continues : continued) {
      int* counter = params.counters + first_cta;
      last = CountArrival(counter) == last_cta - first_cta;
      if (last) *counter = 0;  // for the next launch
    }
    is_last[threadIdx.x] = last ? 1 : 0;
  }
  __syncthreads();

#pragma unroll
  for (int which = 0; which < 2; ++which) {
    if (is_last[which] == 0) continue;
    const SharedHead shared = which == 0 ? front_head : back_head;
    for (int element = static_cast<int>(threadIdx.x); element < elements;
         element += static_cast<int>(blockDim.x)) {
      const int head = element * 4 / kHeadDim;
      const int d = element * 4 % kHeadDim;
      float max = kMinusInfinity;
      float sum = 0.0F;
      float4 value = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      // Several at a time, so that their loads overlap.
      constexpr int kBatch = 8;
      for (int cta = shared.first_cta; cta <= shared.last_cta; cta += kBatch) {
        float maxima[kBatch];
        float sums[kBatch];
        float4 values[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int index = min(cta + i, shared.last_cta);
          const float* partial = partial_of(index, index == shared.first_cta ? 1 : 0);
          maxima[i] = __ldcg(partial + group * kHeadDim + head);
          sums[i] = __ldcg(partial + group * (kHeadDim + 1) + head);
          values[i] = __ldcg(reinterpret_cast<const float4*>(partial + head * kHeadDim + d));
        }
        float new_max = max;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) new_max = fmaxf(new_max, maxima[i]);
        const float old_weight = Exp2(max - new_max);
        sum *= old_weight;
        value = make_float4(value.x * old_weight, value.y * old_weight, value.z * old_weight,
                            value.w * old_weight);
        max = new_max;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const float weight = cta + i <= shared.last_cta ? Exp2(maxima[i] - max) : 0.0F;
          sum += weight * sums[i];
          Accumulate(&value, weight, values[i]);
        }
      }
      StoreOutput(output(shared.row, shared.kv_head) + head * kHeadDim + d, value, sum);
    }
  }
}

}  // namespace decode
}  // namespace tandem
