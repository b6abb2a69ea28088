// The kernel behind stream_linear.h. For the stream_linear_*.cu units only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/hopper_async.cuh"
#include "ops/cuda/stream_linear.h"
#include "ops/cuda/stream_linear_kernel.h"

namespace tandem {
namespace {

// A CTA has two warp groups that multiply, a warp that requests weights and a warp that requests x. Weights and
// x have rings of their own in shared memory: the ring of weights fills while the predecessors still work.
//
// All (tile, chunk) units form one line, and every team takes an equal piece. The tiles that a cut divides are
// added up, in the order of the line, by whoever comes last; each warp does that for its 16 outputs of a block.
//
// With one box in a tile, a CTA takes less than half of an SM: the CTAs of the next kernel fill their rings while
// this one drains.
constexpr int kStreamThreads = (kStreamWarps + 2) * 32;
constexpr int kChunkBytes = kStreamChunk * 2;
constexpr int kSharedAlignment = 1024;
constexpr int kBarrierBytes = 512;
constexpr int kPieceRows = 16;   // rows of x that are turned around at once
constexpr int kPiecePitch = 20;  // floats; 16 outputs
constexpr int kStagingBytes = kStreamWarps * kPieceRows * kPiecePitch * 4;

template <int kColumns, int kBoxes>
struct StreamRings {
  static constexpr int kCtasOfSm = kBoxes == 1 ? 2 : 1;
  // Of 228 KiB every CTA loses one, and none has more than 227.
  static constexpr int kSharedBytes = kBoxes == 1 ? 113 << 10 : 227 << 10;
  static constexpr int kRingBytes = kSharedBytes - kSharedAlignment - kBarrierBytes - kStagingBytes;
  static constexpr int kWeightBytes = kBoxes * kStreamWeightBoxRows * kChunkBytes;
  static constexpr int kXBytes = kColumns * kChunkBytes;
  static constexpr int kWeightSlots = (kRingBytes + kXBytes) / (kWeightBytes + kXBytes);
  static constexpr int kXSlots = std::min((kRingBytes - kWeightSlots * kWeightBytes) / kXBytes, 10);
  static_assert(kWeightSlots >= 3 && kXSlots >= 3);
  static_assert((kWeightSlots + kXSlots) * 16 <= kBarrierBytes);
  static_assert(size_t{kStreamMaxCtas} * 2 * kBoxes * kStreamWeightBoxRows * kColumns * 4 <= kStreamPartialBytes);
  static_assert(kStreamMaxCtas * kStreamWarps * sizeof(int) <= kStreamCounterBytes);
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Place in a ring: a slot and the parity of its current use.
template <int kSlots>
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ int FirstUnitOf(const StreamArguments& arguments, int team) {
  const int cut = arguments.num_units * team / arguments.num_teams;
  const int chunk = cut % arguments.chunks;
  if (chunk <= arguments.snap) return cut - chunk;
  return arguments.chunks - chunk <= arguments.snap ? cut + arguments.chunks - chunk : cut;
}

__device__ __forceinline__ int TeamOf(const StreamArguments& arguments, int unit) {
  int team = unit * arguments.num_teams / arguments.num_units;
  while (FirstUnitOf(arguments, team) > unit) --team;
  while (FirstUnitOf(arguments, team + 1) <= unit) ++team;
  return team;
}

// The value before. What the warp wrote before is visible to who sees the count, and the other way round.
__device__ __forceinline__ int CountPart(int* counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

__device__ __forceinline__ uint32_t PackPair(__nv_bfloat16 /*type*/, float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t PackPair(__half /*type*/, float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ void StoreRounded(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16(value);
}
__device__ __forceinline__ void StoreRounded(__half* to, float value) {
  *to = __float2half(value);
}

// Writes what a warp has of 16 outputs. Each lane ends up with 8 outputs of one row.
template <typename T>
class OutputWriter {
 public:
  __device__ __forceinline__ OutputWriter(const StreamArguments& arguments, float* staging, int lane,
                                          int first_output)
      : arguments_(arguments), staging_(staging), lane_(lane), output_(first_output + lane % 2 * 8) {
    const int of_sums = first_output + lane / 4;
    if (arguments.bias != nullptr && of_sums < arguments.out_features) low_bias_ = arguments.bias[of_sums];
    if (arguments.bias != nullptr && of_sums + 8 < arguments.out_features) {
      high_bias_ = arguments.bias[of_sums + 8];
    }
  }

  // sums: as WarpGroupProduct has them, of rows first_row to first_row + 15 of x.
  __device__ __forceinline__ void Write(const float (&sums)[8], int first_row) {
    const int group = lane_ / 4;
    const int member = lane_ % 4;
    __syncwarp();  // the piece before has been read
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const bool is_high = i % 4 / 2 == 1;
      staging_[(i / 4 * 8 + member * 2 + i % 2) * kPiecePitch + group + (is_high ? 8 : 0)] =
          sums[i] + (is_high ? high_bias_ : low_bias_);
    }
    __syncwarp();
    const int row = first_row + lane_ / 2;
    const int outputs = min(8, arguments_.out_features - output_);
    if (row >= arguments_.rows || outputs <= 0) return;
    const float* from = staging_ + lane_ / 2 * kPiecePitch + lane_ % 2 * 8;
    const int64_t at = row * arguments_.y_stride + output_;
    if (!arguments_.y_is_aligned || outputs < 8) {
#pragma unroll 1
      for (int i = 0; i < outputs; ++i) {
        if (arguments_.y_is_f32) {
          static_cast<float*>(arguments_.y)[at + i] = from[i];
        } else {
          StoreRounded(static_cast<T*>(arguments_.y) + at + i, from[i]);
        }
      }
      return;
    }
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    if (arguments_.y_is_f32) {
      auto* to = reinterpret_cast<float4*>(static_cast<float*>(arguments_.y) + at);
      to[0] = low;
      to[1] = high;
    } else {
      *reinterpret_cast<uint4*>(static_cast<T*>(arguments_.y) + at) =
          make_uint4(PackPair(T(), low.x, low.y), PackPair(T(), low.z, low.w), PackPair(T(), high.x, high.y),
                     PackPair(T(), high.z, high.w));
    }
  }

 private:
  const StreamArguments& arguments_;
  float* staging_;
  int lane_;
  int output_;
  float low_bias_ = 0.0F;
  float high_bias_ = 0.0F;
};

// What the warps leave for whoever adds up a divided tile: of a CTA at most the end of a tile that began before
// (0) and the start of one that goes on behind it (1). Quads of a lane's sums, the lanes' side by side.
template <int kQuads>
__device__ __forceinline__ float4* PartialOf(const StreamArguments& arguments, int cta, int which, int warp,
                                             int lane) {
  const int64_t index = (static_cast<int64_t>(cta) * 2 + which) * kStreamWarps + warp;
  return reinterpret_cast<float4*>(arguments.partials) + index * kQuads * 32 + lane;
}

#define TANDEM_CLUSTER(ctas) __cluster_dims__(ctas, 1, 1)
#else
#define TANDEM_CLUSTER(ctas)
#endif

template <typename T, int kColumns, int kBoxes, int kTeamCtas>
__global__ void TANDEM_CLUSTER(kTeamCtas)
    __launch_bounds__(kStreamThreads, (StreamRings<kColumns, kBoxes>::kCtasOfSm))
        StreamLinearKernel(const __grid_constant__ CUtensorMap weight_map,
                           const __grid_constant__ CUtensorMap x_map,
                           const __grid_constant__ StreamArguments arguments) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using Rings = StreamRings<kColumns, kBoxes>;
  constexpr int kWeightSlots = Rings::kWeightSlots;
  constexpr int kXSlots = Rings::kXSlots;
  constexpr int kTileOutputs = kBoxes * kStreamWeightBoxRows;
  constexpr int kBoxBytes = kStreamWeightBoxRows * kChunkBytes;
  extern __shared__ unsigned char unaligned_shared[];

  AllowSuccessors();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = kTeamCtas == 1 ? 0 : static_cast<int>(hopper::ClusterRank());
  const int team = static_cast<int>(blockIdx.x) / kTeamCtas;
  const int chunks = arguments.chunks;

  const auto unaligned = static_cast<uint32_t>(__cvta_generic_to_shared(unaligned_shared));
  const uint32_t shared = (unaligned + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  const uint32_t weights = shared;
  const uint32_t xs = weights + kWeightSlots * Rings::kWeightBytes;
  const uint32_t staging = xs + kXSlots * Rings::kXBytes;
  const uint32_t barriers = staging + kStagingBytes;
  const auto weight_full = [&](int slot) { return barriers + static_cast<uint32_t>(slot) * 8; };
  const auto weight_free = [&](int slot) { return weight_full(kWeightSlots + slot); };
  const auto x_full = [&](int slot) { return weight_full(2 * kWeightSlots + slot); };
  const auto x_free = [&](int slot) { return weight_full(2 * kWeightSlots + kXSlots + slot); };

  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kWeightSlots; ++slot) {
      hopper::InitBarrier(weight_full(slot), 1);
      hopper::InitBarrier(weight_free(slot), kStreamWarps);
    }
    for (int slot = 0; slot < kXSlots; ++slot) {
      hopper::InitBarrier(x_full(slot), 1);
      hopper::InitBarrier(x_free(slot), kStreamWarps * kTeamCtas);
    }
    hopper::FenceBarrierInit();
  }
  if constexpr (kTeamCtas == 1) {
    __syncthreads();
  } else {
    hopper::SyncCluster();
  }

  const int begin = FirstUnitOf(arguments, team);
  const int num_units = FirstUnitOf(arguments, team + 1) - begin;
  const int first_tile = begin / chunks;
  const int first_chunk = begin % chunks;

  if (warp == kStreamWarps) {
    // Weights: nobody writes them, so nothing is waited for but room.
    if (lane == 0) {
      hopper::PrefetchMap(&weight_map);
      const uint64_t policy = hopper::EvictFirstPolicy();
      RingPlace<kWeightSlots> place;
      int chunk = first_chunk;
      int output = (first_tile * kTeamCtas + rank) * kTileOutputs;
      for (int i = 0; i < num_units; ++i) {
        hopper::WaitForPhase(weight_free(place.slot), place.parity ^ 1);
        const uint32_t full = weight_full(place.slot);
        hopper::ArriveExpectingBytes(full, Rings::kWeightBytes);
        const uint32_t to = weights + static_cast<uint32_t>(place.slot * Rings::kWeightBytes);
#pragma unroll
        for (int box = 0; box < kBoxes; ++box) {
          hopper::CopyBox(to + static_cast<uint32_t>(box * kBoxBytes), &weight_map, chunk * kStreamChunk,
                          output + box * kStreamWeightBoxRows, full, policy);
        }
        place.Advance();
        if (++chunk == chunks) {
          chunk = 0;
          output += kTeamCtas * kTileOutputs;
        }
      }
    }
    __syncwarp();
  } else if (warp == kStreamWarps + 1) {
    if (lane == 0) hopper::PrefetchMap(&x_map);
    WaitForPredecessors();
    if (lane == 0) {
      const uint64_t policy = hopper::EvictLastPolicy();
      // Every CTA of a team brings its share of the rows to all.
      constexpr int kShare = kColumns / kTeamCtas;
      constexpr uint16_t kAllCtas = (1 << kTeamCtas) - 1;
      const int row = rank * kShare;
      RingPlace<kXSlots> place;
      int chunk = first_chunk;
      for (int i = 0; i < num_units; ++i) {
        hopper::WaitForPhase(x_free(place.slot), place.parity ^ 1);
        const uint32_t full = x_full(place.slot);
        hopper::ArriveExpectingBytes(full, Rings::kXBytes);
        const uint32_t to = xs + static_cast<uint32_t>(place.slot * Rings::kXBytes + row * kChunkBytes);
        if constexpr (kTeamCtas == 1) {
          hopper::CopyBox(to, &x_map, chunk * kStreamChunk, row, full, policy);
        } else {
          hopper::CopyBoxToCluster(to, &x_map, chunk * kStreamChunk, row, full, kAllCtas, policy);
        }
        place.Advance();
        if (++chunk == chunks) chunk = 0;
      }
    }
    __syncwarp();
  } else {
    constexpr int kQuads = kBoxes * kColumns / 8;
    WaitForPredecessors();
    const int warp_group = warp / 4;
    // Of this warp, in the warp group's blocks of 64.
    const int first_output_of_warp = warp_group * kBoxes * 64 + warp % 4 * 16;
    auto* warp_staging =
        reinterpret_cast<float*>(unaligned_shared + (staging - unaligned)) + warp * kPieceRows * kPiecePitch;
    const uint64_t weight_matrix =
        hopper::DescribeSwizzled(weights + static_cast<uint32_t>(warp_group * kBoxes * 64 * kChunkBytes));
    const uint64_t x_matrix = hopper::DescribeSwizzled(xs);
    const auto release = [&](int weight_slot, int x_slot) {
      if (lane == 0) hopper::Arrive(weight_free(weight_slot));
      if constexpr (kTeamCtas == 1) {
        if (lane == 1) hopper::Arrive(x_free(x_slot));
      } else {
        if (lane < kTeamCtas) hopper::ArriveInCluster(x_free(x_slot), static_cast<uint32_t>(lane));
      }
    };
    RingPlace<kWeightSlots> weight_place;
    RingPlace<kXSlots> x_place;
    int tile = first_tile;
    int chunk = first_chunk;
    int left = num_units;
    while (left > 0) {
      const int count = min(chunks - chunk, left);
      float sums[kBoxes][kColumns / 2] = {};
      int weight_slot = 0;
      int x_slot = 0;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        hopper::WaitForPhase(weight_full(weight_place.slot), weight_place.parity);
        hopper::WaitForPhase(x_full(x_place.slot), x_place.parity);
        const uint64_t a = weight_matrix + static_cast<uint64_t>(weight_place.slot * Rings::kWeightBytes / 16);
        const uint64_t b = x_matrix + static_cast<uint64_t>(x_place.slot * Rings::kXBytes / 16);
        hopper::BeginProducts();
#pragma unroll
        for (int step = 0; step < kStreamChunk / 16; ++step) {
#pragma unroll
          for (int block = 0; block < kBoxes; ++block) {
            hopper::WarpGroupProduct<T, kColumns>::Add(
                sums[block], a + static_cast<uint64_t>(block * 64 * kChunkBytes / 16 + step * 2),
                b + static_cast<uint64_t>(step * 2));
          }
        }
        hopper::CommitProducts();
        // The products of the chunk before have ended.
        hopper::WaitForProducts<1>();
        if (i > 0) release(weight_slot, x_slot);
        weight_slot = weight_place.slot;
        x_slot = x_place.slot;
        weight_place.Advance();
        x_place.Advance();
      }
      hopper::WaitForProducts<0>();
      release(weight_slot, x_slot);

      const int first_output = (tile * kTeamCtas + rank) * kTileOutputs + first_output_of_warp;
      if (count == chunks) {
#pragma unroll
        for (int block = 0; block < kBoxes; ++block) {
          OutputWriter<T> writer(arguments, warp_staging, lane, first_output + block * 64);
#pragma unroll
          for (int piece = 0; piece < kColumns / kPieceRows; ++piece) {
            float values[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) values[i] = sums[block][piece * 8 + i];
            writer.Write(values, piece * kPieceRows);
          }
        }
      } else {
        float4* partial =
            PartialOf<kQuads>(arguments, static_cast<int>(blockIdx.x), chunk == 0 ? 1 : 0, warp, lane);
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad) {
          constexpr int kQuadsOfBlock = kColumns / 8;
          const float* from = sums[quad / kQuadsOfBlock] + quad % kQuadsOfBlock * 4;
          __stcg(partial + quad * 32, make_float4(from[0], from[1], from[2], from[3]));
        }
        const int tile_begin = tile * chunks;
        const int first_team = TeamOf(arguments, tile_begin);
        const int last_team = TeamOf(arguments, tile_begin + chunks - 1);
        __threadfence();
        __syncwarp();
        int is_last = 0;
        if (lane == 0) {
          int* counter = arguments.counters + (first_team * kTeamCtas + rank) * kStreamWarps + warp;
          is_last = CountPart(counter) == last_team - first_team ? 1 : 0;
          if (is_last != 0) *counter = 0;  // for the next launch
        }
        is_last = __shfl_sync(0xffffffffU, is_last, 0);
        if (is_last != 0) {
          __threadfence();
#pragma unroll 1
          for (int block = 0; block < kBoxes; ++block) {
            OutputWriter<T> writer(arguments, warp_staging, lane, first_output + block * 64);
#pragma unroll 1
            for (int piece = 0; piece < kColumns / kPieceRows; ++piece) {
              const int quad = block * (kColumns / 8) + piece * 2;
              // Several at a time, so that their loads overlap.
              constexpr int kBatch = 4;
              float values[8] = {};
#pragma unroll 1
              for (int part = first_team; part <= last_team; part += kBatch) {
                float4 loaded[kBatch][2];
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                  loaded[i][0] = loaded[i][1] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
                  if (part + i > last_team) continue;
                  const float4* from = PartialOf<kQuads>(arguments, (part + i) * kTeamCtas + rank,
                                                         part + i == first_team ? 1 : 0, warp, lane);
                  loaded[i][0] = __ldcg(from + quad * 32);
                  loaded[i][1] = __ldcg(from + (quad + 1) * 32);
                }
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
#pragma unroll
                  for (int half = 0; half < 2; ++half) {
                    values[half * 4] += loaded[i][half].x;
                    values[half * 4 + 1] += loaded[i][half].y;
                    values[half * 4 + 2] += loaded[i][half].z;
                    values[half * 4 + 3] += loaded[i][half].w;
                  }
                }
              }
              writer.Write(values, piece * kPieceRows);
            }
          }
        }
      }
      left -= count;
      chunk = 0;
      ++tile;
    }
    __syncwarp();
  }
  // Until then the other CTAs may copy to this one's memory and arrive at its barriers.
  if constexpr (kTeamCtas > 1) hopper::SyncCluster();
#else
  __trap();
#endif
}

template <typename T, int kColumns, int kBoxes, int kTeamCtas>
void LaunchStream(CudaStream& stream, const StreamPlan& plan, const CUtensorMap& weight_map,
                  const CUtensorMap& x_map, const StreamArguments& arguments) {
  constexpr int kBytes = StreamRings<kColumns, kBoxes>::kSharedBytes;
  auto* kernel = StreamLinearKernel<T, kColumns, kBoxes, kTeamCtas>;
  static const bool prepared = [kernel] {
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    // Room for a CTA of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  }();
  TANDEM_CHECK(prepared);
  LaunchKernel("stream linear", kernel, dim3(static_cast<unsigned>(plan.num_teams * kTeamCtas)),
               dim3(kStreamThreads), kBytes, stream, weight_map, x_map, arguments);
}

template <typename T, int kColumns>
void LaunchColumns(CudaStream& stream, const StreamPlan& plan, const CUtensorMap& weight_map,
                   const CUtensorMap& x_map, const StreamArguments& arguments) {
  if (plan.tile_boxes == 1) {
    if (plan.team_ctas == 1) {
      LaunchStream<T, kColumns, 1, 1>(stream, plan, weight_map, x_map, arguments);
    } else {
      LaunchStream<T, kColumns, 1, 2>(stream, plan, weight_map, x_map, arguments);
    }
  } else if (plan.team_ctas == 1) {
    LaunchStream<T, kColumns, 2, 1>(stream, plan, weight_map, x_map, arguments);
  } else {
    LaunchStream<T, kColumns, 2, 2>(stream, plan, weight_map, x_map, arguments);
  }
}

template <typename T>
void LaunchPlan(CudaStream& stream, const StreamPlan& plan, const CUtensorMap& weight_map,
                const CUtensorMap& x_map, const StreamArguments& arguments) {
  switch (plan.columns) {
    case 16:
      return LaunchColumns<T, 16>(stream, plan, weight_map, x_map, arguments);
    case 32:
      return LaunchColumns<T, 32>(stream, plan, weight_map, x_map, arguments);
    case 64:
      return LaunchColumns<T, 64>(stream, plan, weight_map, x_map, arguments);
    case 96:
      return LaunchColumns<T, 96>(stream, plan, weight_map, x_map, arguments);
    default:
      TANDEM_CHECK(plan.columns == 128, "stream linear: {} columns", plan.columns);
      return LaunchColumns<T, 128>(stream, plan, weight_map, x_map, arguments);
  }
}

#undef TANDEM_CLUSTER

}  // namespace
}  // namespace tandem
