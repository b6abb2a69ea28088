// What becomes of the sums of the streamed product: parts of a tile are joined, tiles are written. For the
// units of this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/fragments.cuh"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/streamed/streamed_arguments.h"
#include "ops/cuda/linear/streamed/streamed_shape.cuh"
#include "ops/cuda/linear/transpose_in_quad.cuh"
#include "ops/cuda/row_access.h"
#include "ops/cuda/rows/silu.h"

namespace tandem {

// Waits for the group's other warps.
__device__ __forceinline__ void SyncStreamedGroup(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kStreamedGroupThreads) : "memory");
}

__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// What was counted before. What the caller has seen others write is visible to who counts later.
__device__ __forceinline__ uint32_t CountArrival(uint32_t* arrivals) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrivals) : "memory");
  return before;
}

// For a group of warps: adds the sums of the tile's other parts if all are there, else leaves these in
// memory. True: sums are the tile's. In memory a thread's sums lie in a float4 for each block of 8 rows of x,
// of which num_blocks are needed. flag: in shared memory, of the group.
template <typename Shape, typename Sums>
__device__ __forceinline__ bool JoinParts(const StreamedWorkspace& workspace, const WorkCut::Parts& parts,
                                          int worker, int rank, int group, int thread, int num_blocks,
                                          int* flag, Sums& sums) {
  // A worker's place is one of each of its blocks.
  const auto place_of = [&](int of_worker) {
    const int place = WorkCut::PlaceOf(parts, of_worker) * Shape::kCluster + rank;
    return static_cast<float4*>(workspace.partial_sums) +
           static_cast<int64_t>(place * Shape::kGroups + group) * (Shape::kBlocks * kStreamedGroupThreads) +
           thread;
  };
  uint32_t* arrivals =
      workspace.arrivals + (parts.first_worker * Shape::kCluster + rank) * Shape::kGroups + group;
  const auto others = static_cast<uint32_t>(parts.count - 1);

  SyncStreamedGroup(group);  // all have read the flag of the part before
  if (thread == 0) *flag = LoadAcquire(arrivals) == others;
  SyncStreamedGroup(group);
  bool is_last = *flag != 0;
  if (!is_last) {
    float4* to = place_of(worker);
#pragma unroll
    for (int i = 0; i < Shape::kBlocks; ++i) {
      if (i < num_blocks) {
        __stcg(to + i * kStreamedGroupThreads,
               make_float4(sums(4 * i), sums(4 * i + 1), sums(4 * i + 2), sums(4 * i + 3)));
      }
    }
    SyncStreamedGroup(group);
    if (thread == 0) *flag = CountArrival(arrivals) == others;
    SyncStreamedGroup(group);
    is_last = *flag != 0;
  }
  if (!is_last) return false;
  if (thread == 0) *arrivals = 0;  // for the next product

  // Enough loads at a time to hide what one takes, within the registers.
  constexpr int kBatch = std::min(Shape::kBlocks, Shape::kBlocks > 16 ? 8 : 16);
  const int before = worker - parts.first_worker;
#pragma unroll
  for (int first = 0; first < Shape::kBlocks; first += kBatch) {
    if (first >= num_blocks) break;
    float4 loaded[kBatch];
    const auto load = [&](int part) {
      const float4* from = place_of(parts.first_worker + part);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first + i < num_blocks) loaded[i] = __ldcg(from + (first + i) * kStreamedGroupThreads);
      }
    };
    if (before > 0) {
      float4 sum[kBatch];
      load(0);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) sum[i] = loaded[i];
#pragma unroll 1
      for (int part = 1; part < before; ++part) {
        load(part);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          sum[i].x += loaded[i].x;
          sum[i].y += loaded[i].y;
          sum[i].z += loaded[i].z;
          sum[i].w += loaded[i].w;
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = 4 * (first + i);
        sums(at) = sum[i].x + sums(at);
        sums(at + 1) = sum[i].y + sums(at + 1);
        sums(at + 2) = sum[i].z + sums(at + 2);
        sums(at + 3) = sum[i].w + sums(at + 3);
      }
    }
#pragma unroll 1
    for (int part = before + 1; part < parts.count; ++part) {
      load(part);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = 4 * (first + i);
        sums(at) += loaded[i].x;
        sums(at + 1) += loaded[i].y;
        sums(at + 2) += loaded[i].z;
        sums(at + 3) += loaded[i].w;
      }
    }
  }
  return true;
}

// Adds the bias and writes the results, or silu(gate) * up of them. first_row: of the tile; first_output: of
// the warp's 16.
template <typename T, typename Shape, typename Sums>
__device__ __forceinline__ void WriteResults(const StreamedArguments& arguments, int first_row,
                                             int first_output, int lane, const Sums& sums) {
  const int rows = arguments.rows - first_row;
  const int octet = lane / 4;
  const int q = lane % 4;
  float bias[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = first_output + half * 8 + octet;
    if (arguments.bias != nullptr && output < arguments.out_features) bias[half] = arguments.bias[output];
  }
  if (arguments.y_is_f32) {
    auto* y = static_cast<float*>(arguments.y) + first_row * arguments.y_stride;
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) {
      const int row = i / 4 * 8 + q * 2 + i % 2;
      const int half = i % 4 / 2;
      const int output = first_output + half * 8 + octet;
      if (row < rows && output < arguments.out_features) {
        y[row * arguments.y_stride + output] = sums(i) + bias[half];
      }
    }
    return;
  }
  auto* y = static_cast<T*>(arguments.y) + first_row * arguments.y_stride;
  // Four blocks of 8 rows at a time: transposed, a thread has 8 results in sequence of one row. column: in y.
  const auto write = [&](int block, int column, const auto& pair_of) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = TransposeBlock(pair_of(4 * (block + i)));
    TransposeInQuad(words, q);
    const int row = (block + q) * 8 + octet;
    if (row < rows) {
      *reinterpret_cast<uint4*>(y + row * arguments.y_stride + column) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
  };
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; block += 4) {
    if (block * 8 >= rows) break;
    if (arguments.is_gate_up) {
      // The warp's first 8 outputs are gates, the others the ups that belong to them.
      static_assert(kGateUpBlock == 8);
      if (first_output >= arguments.out_features) break;
      write(block, first_output / 2, [&](int at) {
        return PackPair<T>(SiluMulOne(sums(at) + bias[0], sums(at + 2) + bias[1]),
                           SiluMulOne(sums(at + 1) + bias[0], sums(at + 3) + bias[1]));
      });
      continue;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int output = first_output + half * 8;
      if (output >= arguments.out_features) break;
      write(block, output, [&](int at) {
        return PackPair<T>(sums(at + 2 * half) + bias[half], sums(at + 2 * half + 1) + bias[half]);
      });
    }
  }
}

}  // namespace tandem
