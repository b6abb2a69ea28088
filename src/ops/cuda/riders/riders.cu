// Gather and scatter of riders: a CTA for each row.
//
// Two exchanges cross the bus, each in the order data, word (release), word (acquire), data:
//
//   CPU to GPU   O, done    gather's CTAs read done, then O
//   GPU to CPU   Q/K/V, ready    each CTA of scatter writes, fences and counts itself in; the last one of the
//                group, which has seen all others count themselves in, writes ready
#include <algorithm>

#include "device/cuda/cuda_sync.h"
#include "device/cuda/system_memory.cuh"
#include "ops/cuda/riders/riders.h"
#include "ops/cuda/row_launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
// Of which this many move what lies in host memory, and the others the residual, at the same time.
constexpr int kBusThreads = 128;
constexpr int kUnitsInFlight = 4;

__device__ __forceinline__ uint32_t CompareAndSwap(uint32_t* word, uint32_t expected, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(before)
               : "l"(word), "r"(expected), "r"(value)
               : "memory");
  return before;
}

__device__ __forceinline__ uint32_t CountIn(uint32_t* counter) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before + 1;
}

struct RiderPlace {
  int group = -1;  // -1: the boundary has fewer rows
  int row = 0;     // of the group
};

__device__ __forceinline__ RiderPlace FindRow(const RiderTables& tables, const RiderRows& rows) {
  const int begin = tables.group_begins[rows.boundary + 1];
  const int end = tables.group_begins[rows.boundary + 2];
  const int row = static_cast<int>(blockIdx.x);
  RiderPlace place;
  for (int group = begin; group < end; ++group) {
    const int group_end = tables.groups[group].row_begin + tables.groups[group].num_rows;
    // A group of which a part would be left out would never be ready.
    if (group_end > rows.num_rows) __trap();
    if (row < group_end) {
      place.group = group;
      place.row = row - tables.groups[group].row_begin;
      return place;
    }
  }
  return place;
}

__device__ __forceinline__ uint32_t FindDecision(const RiderDescriptor& group) {
  const uint32_t done = LoadAcquireSystem(group.done);
  return done >= group.done_value && done < kAbortedWord ? kRidersJoin : kRidersStay;
}

// The same for all CTAs of the group, whatever becomes of done meanwhile: what the first of them has found.
// True: O may be read, because this CTA has acquired done, or the decision of a CTA that had.
__device__ __forceinline__ bool DecideToJoin(const RiderDescriptor& group, uint32_t* decision) {
  const uint32_t found = FindDecision(group);
  const uint32_t before = CompareAndSwap(decision, kRidersUndecided, found);
  return (before == kRidersUndecided ? found : before) == kRidersJoin;
}

__device__ __forceinline__ bool IsMultiple(uintptr_t bits, uintptr_t size) {
  return bits % size == 0;
}

// Units of one size by threads [0, num_threads). kUncached: from host memory, of which nothing that was
// fetched earlier is to be used.
template <typename Unit, bool kUncached>
__device__ __forceinline__ void CopyUnits(const std::byte* from, std::byte* to, int num_bytes, int thread,
                                          int num_threads) {
  const auto* from_units = reinterpret_cast<const Unit*>(from);
  auto* to_units = reinterpret_cast<Unit*>(to);
  const int num_units = num_bytes / static_cast<int>(sizeof(Unit));
  for (int begin = thread; begin < num_units; begin += kUnitsInFlight * num_threads) {
    Unit units[kUnitsInFlight];
#pragma unroll
    for (int i = 0; i < kUnitsInFlight; ++i) {
      const int at = begin + i * num_threads;
      if (at >= num_units) continue;
      if constexpr (kUncached) {
        units[i] = __ldcv(from_units + at);
      } else {
        units[i] = from_units[at];
      }
    }
#pragma unroll
    for (int i = 0; i < kUnitsInFlight; ++i) {
      const int at = begin + i * num_threads;
      if (at < num_units) to_units[at] = units[i];
    }
  }
}

// In units of 16 bytes where addresses and size allow it.
template <bool kUncached>
__device__ __forceinline__ void CopyRow(const std::byte* from, std::byte* to, int num_bytes, int thread,
                                        int num_threads) {
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | static_cast<uintptr_t>(num_bytes);
  if (IsMultiple(bits, sizeof(uint4))) {
    CopyUnits<uint4, kUncached>(from, to, num_bytes, thread, num_threads);
  } else if (IsMultiple(bits, sizeof(unsigned int))) {
    CopyUnits<unsigned int, kUncached>(from, to, num_bytes, thread, num_threads);
  } else {
    CopyUnits<unsigned short, kUncached>(from, to, num_bytes, thread, num_threads);
  }
}

// One CTA. O of those found done is there for the kernels behind this one.
__global__ void __launch_bounds__(kThreads) DecideRidersKernel(RiderTables tables, int32_t boundary) {
  AllowSuccessors();
  WaitForPredecessors();
  const int end = tables.group_begins[boundary + 2];
  for (int group = tables.group_begins[boundary + 1] + static_cast<int>(threadIdx.x); group < end;
       group += kThreads) {
    tables.decisions[group] = FindDecision(tables.groups[group]);
  }
}

__global__ void __launch_bounds__(kThreads) GatherRidersKernel(RiderTables tables, RiderRows rows) {
  __shared__ bool joins;
  AllowSuccessors();
  WaitForPredecessors();
  const RiderPlace place = FindRow(tables, rows);
  if (place.group < 0) return;
  const RiderDescriptor& group = tables.groups[place.group];
  const auto thread = static_cast<int>(threadIdx.x);
  const bool enters = rows.boundary < 0;
  if (thread == 0) {
    uint32_t* decision = tables.decisions + place.group;
    joins = enters || (tables.decided_ahead ? *decision == kRidersJoin : DecideToJoin(group, decision));
  }
  // All threads may read O: what the first one has acquired holds for those that it meets here.
  __syncthreads();
  if (!joins) return;
  const int64_t row = blockIdx.x;
  if (thread == 0) rows.positions[row] = group.positions[place.row];
  if (enters) return;
  if (thread < kBusThreads) {
    CopyRow<true>(group.attention_out + static_cast<int64_t>(place.row) * rows.attention_out_bytes,
                  rows.attention_out + row * rows.attention_out_stride_bytes, rows.attention_out_bytes,
                  thread, kBusThreads);
  } else {
    CopyRow<false>(group.residual + static_cast<int64_t>(place.row) * rows.residual_bytes,
                   rows.residual + row * rows.residual_stride_bytes, rows.residual_bytes,
                   thread - kBusThreads, kThreads - kBusThreads);
  }
}

__global__ void __launch_bounds__(kThreads) ScatterRidersKernel(RiderTables tables, RiderRows rows) {
  AllowSuccessors();
  WaitForPredecessors();
  const auto thread = static_cast<int>(threadIdx.x);
  if (blockIdx.x == 0 && thread == 0) *tables.progress = *tables.first_pass + rows.boundary + 1;
  const RiderPlace place = FindRow(tables, rows);
  if (place.group < 0 || tables.decisions[place.group] != kRidersJoin) return;
  const RiderDescriptor& group = tables.groups[place.group];
  const int64_t row = blockIdx.x;
  const bool leaves = group.qkv == nullptr;  // no layer comes behind the last boundary
  if (thread >= kBusThreads) {
    CopyRow<false>(rows.residual + row * rows.residual_stride_bytes,
                   group.residual + static_cast<int64_t>(place.row) * rows.residual_bytes,
                   rows.residual_bytes, thread - kBusThreads, kThreads - kBusThreads);
  } else if (!leaves) {
    CopyRow<false>(rows.qkv + row * rows.qkv_stride_bytes,
                   group.qkv + static_cast<int64_t>(place.row) * rows.qkv_bytes, rows.qkv_bytes, thread,
                   kBusThreads);
  }
  if (leaves) return;
  __syncthreads();
  if (thread != 0) return;
  __threadfence_system();
  if (CountIn(tables.arrivals + place.group) == static_cast<uint32_t>(group.num_rows)) {
    StoreReleaseSystem(group.ready, group.ready_value);
  }
}

}  // namespace

void LaunchDecideRiders(CudaStream& stream, const RiderTables& tables, int32_t boundary) {
  LaunchRowKernel<DecideRidersKernel>("decide_riders", 1, kThreads, stream, tables, boundary);
}

void LaunchGatherRiders(CudaStream& stream, const RiderTables& tables, const RiderRows& rows) {
  if (rows.num_rows == 0) return;
  LaunchRowKernel<GatherRidersKernel>("gather_riders", static_cast<unsigned>(rows.num_rows), kThreads, stream,
                                      tables, rows);
}

void LaunchScatterRiders(CudaStream& stream, const RiderTables& tables, const RiderRows& rows) {
  // Without rows too: the progress.
  LaunchRowKernel<ScatterRidersKernel>("scatter_riders", static_cast<unsigned>(std::max(rows.num_rows, 1)),
                                       kThreads, stream, tables, rows);
}

}  // namespace tandem
