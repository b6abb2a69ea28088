#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "base/check.h"
#include "collective/cuda/peer_exchange.h"
#include "device/cuda/global_timer.cuh"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/system_memory.cuh"

namespace tandem {
namespace {

constexpr int kThreads = 512;
constexpr int kPassBytes = static_cast<int>(kThreads * sizeof(uint4));
constexpr int kVectors = static_cast<int>(kSlotBytes) / kPassBytes;
// Looks at a flag before anything else is looked at.
constexpr int kLooks = 256;

// How a kernel cuts so many bytes, of the rank that has most of them: slots of them follow each other, one
// for each block and then again.
struct Cut {
  unsigned num_blocks = 1;
  int slot_bytes = kPassBytes;  // whole passes of a block, at most kSlotBytes
  int64_t num_rounds = 1;
};

Cut CutOf(const PeerEnd& end, int64_t size_bytes) {
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // What a block does in one pass is little enough to share it no further.
  const int64_t num_passes = std::max<int64_t>(1, divide_up(size_bytes, kPassBytes));
  const int64_t num_blocks = std::min<int64_t>(num_passes, end.num_blocks);
  const int64_t slot_passes = std::min<int64_t>(divide_up(num_passes, num_blocks), kVectors);
  return {.num_blocks = static_cast<unsigned>(num_blocks),
          .slot_bytes = static_cast<int>(slot_passes * kPassBytes),
          .num_rounds = divide_up(num_passes, num_blocks * slot_passes)};
}

// Slots: past the first-level cache, which may hold what lay there before.
__device__ __forceinline__ uint4 LoadSlot(const uint4* at) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at)
               : "memory");
  return value;
}
__device__ __forceinline__ uint32_t LoadSlot(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ uint16_t LoadSlot(const uint16_t* at) {
  uint16_t value;
  asm volatile("ld.volatile.global.u16 %0, [%1];" : "=h"(value) : "l"(at) : "memory");
  return value;
}

struct F32 {
  using Bits = uint32_t;
  __device__ static float ToFloat(Bits bits) { return __uint_as_float(bits); }
  __device__ static Bits FromFloat(float value) { return __float_as_uint(value); }
};
struct BF16 {
  using Bits = uint16_t;
  __device__ static float ToFloat(Bits bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
  __device__ static Bits FromFloat(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
};
struct F16 {
  using Bits = uint16_t;
  __device__ static float ToFloat(Bits bits) { return __half2float(__ushort_as_half(bits)); }
  __device__ static Bits FromFloat(float value) { return __half_as_ushort(__float2half_rn(value)); }
};

// Of the slots that source writes and receiver reads.
struct Slot {
  std::byte* data;
  __device__ Slot(const PeerEnd& end, int receiver, int source, uint32_t count) {
    const int64_t index = (static_cast<int64_t>(source) * end.num_blocks + blockIdx.x) * 2 + (count & 1U);
    data = end.inboxes[receiver] + index * static_cast<int64_t>(kSlotBytes + kSlotHeaderBytes);
  }
  template <typename Unit>
  __device__ Unit* units() const {
    return reinterpret_cast<Unit*>(data);
  }
  __device__ int64_t* header() const { return reinterpret_cast<int64_t*>(data + kSlotBytes); }
};

// False: the rank has not come in time, or all exchange has ended.
__device__ bool AwaitFlag(const PeerEnd& end, int from, uint32_t count) {
  const uint32_t* flag = end.flags[end.rank] + from * end.num_blocks + blockIdx.x;
  const auto is_here = [&] { return static_cast<int32_t>(LoadAcquireSystem(flag) - count) >= 0; };
  for (int look = 0; look < kLooks; ++look) {
    if (is_here()) return true;
  }
  const uint64_t begin = NowNs();
  auto* control = static_cast<volatile PeerControl*>(end.control);
  while (control->aborted == 0) {
    for (int look = 0; look < kLooks; ++look) {
      if (is_here()) return true;
    }
    if (NowNs() - begin < end.timeout_ns) continue;
    control->late = static_cast<uint32_t>(from) + 1;
    control->aborted = 1;
    __threadfence_system();
  }
  return false;
}

// num_rounds: the same on all ranks. push(round, count): writes slots of all others. take(round, count): all
// that they have written is there.
template <typename Push, typename Take>
__device__ __forceinline__ void Exchange(const PeerEnd& end, int64_t num_rounds, const Push& push,
                                         const Take& take) {
  WaitForPredecessors();
  uint32_t count = end.counts[blockIdx.x];
  const auto thread = static_cast<int>(threadIdx.x);
  for (int64_t round = 0; round < num_rounds; ++round) {
    ++count;
    push(round, count);
    __syncthreads();
    bool all_here = true;
    if (thread < end.size && thread != end.rank) {
      StoreReleaseSystem(end.flags[thread] + end.rank * end.num_blocks + blockIdx.x, count);
      all_here = AwaitFlag(end, thread, count);
    }
    if (__syncthreads_and(static_cast<int>(all_here)) == 0) return;
    // Not before the others have come: what follows would take room on the SMs from what they wait for.
    if (round + 1 == num_rounds) AllowSuccessors();
    take(round, count);
  }
  if (thread == 0) end.counts[blockIdx.x] = count;
}

// Slots of 16 bytes at a time. num_units: whole ones.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    AllReduceVectorsKernel(PeerEnd end, Cut cut, uint4* values, int64_t num_units) {
  using Bits = typename T::Bits;
  constexpr int kWidth = sizeof(uint4) / sizeof(Bits);
  union Vector {
    uint4 unit;
    Bits bits[kWidth];
  };
  Vector own[kVectors];
  const int num_vectors = cut.slot_bytes / kPassBytes;
  const auto at = [&](int64_t round, int i) {
    return ((round * gridDim.x + blockIdx.x) * num_vectors + i) * kThreads + threadIdx.x;
  };
  const auto has = [&](int64_t round, int i) { return i < num_vectors && at(round, i) < num_units; };
  Exchange(
      end, cut.num_rounds,
      [&](int64_t round, uint32_t count) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          if (has(round, i)) own[i].unit = values[at(round, i)];
        }
        for (int other = 0; other < end.size; ++other) {
          if (other == end.rank) continue;
          auto* slot = Slot(end, other, end.rank, count).units<uint4>();
#pragma unroll
          for (int i = 0; i < kVectors; ++i) {
            if (has(round, i)) slot[i * kThreads + threadIdx.x] = own[i].unit;
          }
        }
      },
      [&](int64_t round, uint32_t count) {
        float sums[kVectors][kWidth];
        for (int source = 0; source < end.size; ++source) {
          const auto* slot = Slot(end, end.rank, source, count).units<const uint4>();
          Vector part[kVectors];
#pragma unroll
          for (int i = 0; i < kVectors; ++i) {
            if (!has(round, i)) continue;
            part[i].unit = source == end.rank ? own[i].unit : LoadSlot(slot + i * kThreads + threadIdx.x);
          }
#pragma unroll
          for (int i = 0; i < kVectors; ++i) {
#pragma unroll
            for (int j = 0; j < kWidth; ++j) {
              const float value = T::ToFloat(part[i].bits[j]);
              sums[i][j] = source == 0 ? value : sums[i][j] + value;
            }
          }
        }
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          if (!has(round, i)) continue;
          Vector sum;
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sum.bits[j] = T::FromFloat(sums[i][j]);
          values[at(round, i)] = sum.unit;
        }
      });
}

// Any number of elements at any address.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    AllReduceKernel(PeerEnd end, Cut cut, typename T::Bits* values, int64_t num_values) {
  using Bits = typename T::Bits;
  const int64_t per_slot = cut.slot_bytes / sizeof(Bits);
  const auto first = [&](int64_t round) { return (round * gridDim.x + blockIdx.x) * per_slot; };
  const auto for_each = [&](int64_t round, const auto& body) {
    const int64_t count = min(per_slot, num_values - first(round));
    for (int64_t i = threadIdx.x; i < count; i += kThreads) body(i);
  };
  Exchange(
      end, cut.num_rounds,
      [&](int64_t round, uint32_t count) {
        for_each(round, [&](int64_t i) {
          for (int other = 0; other < end.size; ++other) {
            if (other != end.rank)
              Slot(end, other, end.rank, count).units<Bits>()[i] = values[first(round) + i];
          }
        });
      },
      [&](int64_t round, uint32_t count) {
        for_each(round, [&](int64_t i) {
          Bits* const value = values + first(round) + i;
          float sum = 0;
          for (int source = 0; source < end.size; ++source) {
            const Bits bits = source == end.rank
                                  ? *value
                                  : LoadSlot(Slot(end, end.rank, source, count).units<const Bits>() + i);
            sum = source == 0 ? T::ToFloat(bits) : sum + T::ToFloat(bits);
          }
          *value = T::FromFloat(sum);
        });
      });
}

// Header of a slot: the columns of its source.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    AllGatherKernel(PeerEnd end, Cut cut, Unit* matrix, int64_t rows, int64_t row_stride,
                    int64_t column_begin, int64_t num_columns) {
  const int64_t per_slot = cut.slot_bytes / sizeof(Unit);
  const auto for_each = [&](int64_t round, int64_t begin, int64_t columns, const auto& body) {
    const int64_t first = (round * gridDim.x + blockIdx.x) * per_slot;
    const int64_t count = min(per_slot, rows * columns - first);
    for (int64_t i = threadIdx.x; i < count; i += kThreads) {
      const int64_t row = (first + i) / columns;
      body(i, matrix + row * row_stride + begin + (first + i - row * columns));
    }
  };
  Exchange(
      end, cut.num_rounds,
      [&](int64_t round, uint32_t count) {
        if (threadIdx.x < end.size && static_cast<int>(threadIdx.x) != end.rank) {
          int64_t* const header = Slot(end, static_cast<int>(threadIdx.x), end.rank, count).header();
          header[0] = column_begin;
          header[1] = num_columns;
        }
        for_each(round, column_begin, num_columns, [&](int64_t i, const Unit* from) {
          const Unit value = *from;
          for (int other = 0; other < end.size; ++other) {
            if (other != end.rank) Slot(end, other, end.rank, count).units<Unit>()[i] = value;
          }
        });
      },
      [&](int64_t round, uint32_t count) {
        for (int source = 0; source < end.size; ++source) {
          if (source == end.rank) continue;
          const Slot slot(end, end.rank, source, count);
          const auto* header = static_cast<const volatile int64_t*>(slot.header());
          for_each(round, header[0], header[1],
                   [&](int64_t i, Unit* to) { *to = LoadSlot(slot.units<const Unit>() + i); });
        }
      });
}

// body(i, &element) for the elements of a block's slot in a round, where a slot has per_slot of them.
template <typename T, typename Body>
__device__ __forceinline__ void ForEachOfSlot(int64_t round, int64_t per_slot, T* values, int64_t num_values,
                                              const Body& body) {
  const int64_t first = (round * gridDim.x + blockIdx.x) * per_slot;
  const int64_t count = min(per_slot, num_values - first);
  for (int64_t i = threadIdx.x; i < count; i += kThreads) body(i, values + first + i);
}

__global__ void __launch_bounds__(kThreads)
    BroadcastKernel(PeerEnd end, Cut cut, uint32_t* data, int64_t num_words) {
  const int64_t per_slot = cut.slot_bytes / sizeof(uint32_t);
  const auto for_each = [&](int64_t round, const auto& body) {
    ForEachOfSlot(round, per_slot, data, num_words, body);
  };
  Exchange(
      end, cut.num_rounds,
      [&](int64_t round, uint32_t count) {
        if (end.rank != 0) return;
        for_each(round, [&](int64_t i, const uint32_t* from) {
          for (int other = 1; other < end.size; ++other)
            Slot(end, other, 0, count).units<uint32_t>()[i] = *from;
        });
      },
      [&](int64_t round, uint32_t count) {
        if (end.rank == 0) return;
        const Slot slot(end, end.rank, 0, count);
        for_each(round, [&](int64_t i, uint32_t* to) { *to = LoadSlot(slot.units<const uint32_t>() + i); });
      });
}

__global__ void __launch_bounds__(kThreads)
    MinKernel(PeerEnd end, Cut cut, int32_t* values, int64_t num_values) {
  const int64_t per_slot = cut.slot_bytes / sizeof(int32_t);
  const auto for_each = [&](int64_t round, const auto& body) {
    ForEachOfSlot(round, per_slot, values, num_values, body);
  };
  Exchange(
      end, cut.num_rounds,
      [&](int64_t round, uint32_t count) {
        for_each(round, [&](int64_t i, const int32_t* from) {
          for (int other = 0; other < end.size; ++other) {
            if (other != end.rank) Slot(end, other, end.rank, count).units<int32_t>()[i] = *from;
          }
        });
      },
      [&](int64_t round, uint32_t count) {
        for_each(round, [&](int64_t i, int32_t* value) {
          int32_t least = *value;
          for (int source = 0; source < end.size; ++source) {
            if (source == end.rank) continue;
            const Slot slot(end, end.rank, source, count);
            least = min(least, static_cast<int32_t>(LoadSlot(slot.units<const uint32_t>() + i)));
          }
          *value = least;
        });
      });
}

template <auto kKernel, typename... Arguments>
void Launch(std::string_view op, CudaStream& stream, const PeerEnd& end, const Cut& cut,
            Arguments... arguments) {
  LaunchKernel(op, kKernel, cut.num_blocks, kThreads, 0, stream, end, cut, arguments...);
}

template <typename T>
void LaunchAllReduce(CudaStream& stream, const PeerEnd& end, const MatrixView& values) {
  using Bits = typename T::Bits;
  const int64_t num_values = values.rows * values.cols;
  const int64_t size_bytes = num_values * static_cast<int64_t>(sizeof(Bits));
  const Cut cut = CutOf(end, size_bytes);
  constexpr int64_t kUnitBytes = sizeof(uint4);
  if (reinterpret_cast<uintptr_t>(values.data) % kUnitBytes == 0 && size_bytes % kUnitBytes == 0) {
    return Launch<AllReduceVectorsKernel<T>>("all-reduce", stream, end, cut, static_cast<uint4*>(values.data),
                                             size_bytes / kUnitBytes);
  }
  Launch<AllReduceKernel<T>>("all-reduce", stream, end, cut, static_cast<Bits*>(values.data), num_values);
}

}  // namespace

size_t PeerInboxBytes(int size, int num_blocks) {
  return static_cast<size_t>(size) * static_cast<size_t>(num_blocks) * 2 * (kSlotBytes + kSlotHeaderBytes);
}

int64_t PeerOneRoundBytes(int num_blocks) {
  return int64_t{num_blocks} * static_cast<int64_t>(kSlotBytes);
}

void LaunchPeerAllReduce(CudaStream& stream, const PeerEnd& end, const MatrixView& values) {
  if (values.rows * values.cols == 0) return;
  if (values.dtype == DType::kF32) return LaunchAllReduce<F32>(stream, end, values);
  if (values.dtype == DType::kBF16) return LaunchAllReduce<BF16>(stream, end, values);
  TANDEM_CHECK(values.dtype == DType::kF16, "all-reduce of {}", DTypeName(values.dtype));
  LaunchAllReduce<F16>(stream, end, values);
}

void LaunchPeerAllGather(CudaStream& stream, const PeerEnd& end, const MatrixView& matrix,
                         int64_t column_begin, int64_t num_columns) {
  if (matrix.rows == 0 || matrix.cols == 0) return;
  const int64_t most_columns = (matrix.cols + end.size - 1) / end.size;
  TANDEM_CHECK(num_columns <= most_columns, "all-gather: {} of {} columns from one of {} ranks", num_columns,
               matrix.cols, end.size);
  const Cut cut = CutOf(end, matrix.rows * most_columns * static_cast<int64_t>(DTypeSize(matrix.dtype)));
  if (DTypeSize(matrix.dtype) == sizeof(uint32_t)) {
    return Launch<AllGatherKernel<uint32_t>>("all-gather", stream, end, cut,
                                             static_cast<uint32_t*>(matrix.data), matrix.rows,
                                             matrix.row_stride, column_begin, num_columns);
  }
  TANDEM_CHECK(DTypeSize(matrix.dtype) == sizeof(uint16_t), "all-gather of {}", DTypeName(matrix.dtype));
  Launch<AllGatherKernel<uint16_t>>("all-gather", stream, end, cut, static_cast<uint16_t*>(matrix.data),
                                    matrix.rows, matrix.row_stride, column_begin, num_columns);
}

void LaunchPeerBroadcast(CudaStream& stream, const PeerEnd& end, void* data, size_t size_bytes) {
  if (size_bytes == 0) return;
  TANDEM_CHECK(size_bytes % sizeof(uint32_t) == 0, "broadcast of {} bytes", size_bytes);
  Launch<BroadcastKernel>("broadcast", stream, end, CutOf(end, static_cast<int64_t>(size_bytes)),
                          static_cast<uint32_t*>(data), static_cast<int64_t>(size_bytes / sizeof(uint32_t)));
}

void LaunchPeerMin(CudaStream& stream, const PeerEnd& end, int32_t* values, int64_t num_values) {
  if (num_values == 0) return;
  Launch<MinKernel>("min", stream, end, CutOf(end, num_values * static_cast<int64_t>(sizeof(int32_t))),
                    values, num_values);
}

void PreparePeerKernels() {
  // An SM drains before it divides its memory between shared memory and the first-level cache in another way.
  const auto prepare = [](auto* kernel) {
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
  };
  prepare(AllReduceVectorsKernel<F32>);
  prepare(AllReduceVectorsKernel<BF16>);
  prepare(AllReduceVectorsKernel<F16>);
  prepare(AllReduceKernel<F32>);
  prepare(AllReduceKernel<BF16>);
  prepare(AllReduceKernel<F16>);
  prepare(AllGatherKernel<uint32_t>);
  prepare(AllGatherKernel<uint16_t>);
  prepare(BroadcastKernel);
  prepare(MinKernel);
}

}  // namespace tandem
