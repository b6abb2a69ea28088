// The kernel of quantized_linear.h.
//
// A block computes 128 outputs (two panels) for up to 128 rows over a part of the slices. What a slice needs,
// the records and a piece of x, comes into a ring in shared memory; the records of the first slices are
// requested before the stream's earlier kernels have ended. Warps divide outputs and rows between them.
// Blocks that share outputs leave their sums in the workspace, and the last of them adds these up, always in
// the same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/code_values.cuh"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

constexpr int kQuantizedThreads = 256;
constexpr int kQuantizedWarps = kQuantizedThreads / 32;
constexpr int kBlockOutputs = 2 * kCodePanelOutputs;
constexpr int kBlockRecords = kBlockOutputs / kRecordOutputs;

// Of records, all that a kernel must know.
template <int kBits, int kGroupSize, bool kHasMinimum>
struct RecordFormat {
  static constexpr CodeLayout kLayout = {kBits, kGroupSize, kHasMinimum, 0};
};

// How the warps of a block divide its outputs and rows. kBlocksPerSm: what registers and shared memory are
// to leave room for.
template <int kWarpRecords_, int kWarpRowTiles_, int kRowWarps_, int kBlocksPerSm_, int kSharedBudget_>
struct BlockTiling {
  static constexpr int kWarpRecords = kWarpRecords_;    // of 16 outputs, of a warp
  static constexpr int kWarpRowTiles = kWarpRowTiles_;  // of 8 rows, of a warp
  static constexpr int kRowWarps = kRowWarps_;          // that have the same outputs
  static constexpr int kOutputWarps = kQuantizedWarps / kRowWarps_;
  static constexpr int kRows = kRowWarps_ * kWarpRowTiles_ * 8;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kSharedBudget = kSharedBudget_;
  // Whether each warp sums x up itself, rather than one for all: those of few rows would wait for it.
  static constexpr bool kSumsItself = kWarpRecords == 1;
  static_assert(kOutputWarps * kWarpRecords == kBlockRecords);
};

// What lies where in shared memory. After the products the sums take the place of the ring.
template <typename Format, typename Tiling>
struct SharedPlan {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kRecordBytes = kLayout.record_bytes();
  static constexpr int kRecordsBytes = kBlockRecords * kRecordBytes;
  // Of a row of x. The 64 bytes behind it keep neighbours off each other's banks.
  static constexpr int kXPitch = kLayout.slice_size() * 2 + 64;
  static constexpr int kXBytes = Tiling::kRows * kXPitch;
  static constexpr int kStageBytes = kRecordsBytes + kXBytes;
  // Sums of x for each group and row of two stages.
  static constexpr bool kHasSumsOfX = kLayout.has_minimum && !Tiling::kSumsItself;
  static constexpr int kSumsOfX = kHasSumsOfX ? kLayout.groups_per_slice() * Tiling::kRows : 0;
  static constexpr int kSumsOfXBytes = 2 * kSumsOfX * 4;
  static constexpr int kMinDepth = 3;
  static constexpr int kMaxDepth = 8;
  static constexpr int kFitting = (Tiling::kSharedBudget - kSumsOfXBytes) / kStageBytes;
  static constexpr int kDepth = std::clamp(kFitting, kMinDepth, kMaxDepth);
  // A warp's stores of sums meet no bank twice.
  static constexpr int kSumsPitch = kBlockOutputs + 4;
  static constexpr int kSumsBytes = Tiling::kRows * kSumsPitch * 4;
  static constexpr int kBytes = std::max(kDepth * kStageBytes + kSumsOfXBytes, kSumsBytes);
  static_assert(kStageBytes % 16 == 0);
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

__device__ __forceinline__ float2 TwoFloats(uint32_t two_halves) {
  return __half22float2(*reinterpret_cast<const __half2*>(&two_halves));
}

// One slice that has arrived: where its parts are, and what a lane holds of it.
template <typename T, typename Format, typename Tiling>
struct SliceProduct {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kXPitch = SharedPlan<Format, Tiling>::kXPitch;
  static constexpr int kSteps = kLayout.slice_size() / 16;
  // Groups of 16 are a step each; others take x in quanta of two steps.
  static constexpr bool kStepGroups = kLayout.group_size == 16;
  static constexpr int kStepsPerGroup = kLayout.group_size / 16;
  static constexpr int kGroups = kLayout.groups_per_slice();
  static constexpr int kChunks = kLayout.code_bytes() / 512;
  static constexpr int kNumbers = kLayout.numbers_per_group();
  // A span is what is taken from codes to sums at once: a group, or the two groups of a quantum.
  static constexpr int kSpanSteps = kStepGroups ? 2 : kStepsPerGroup;
  static constexpr int kSpanGroups = kStepGroups ? 2 : 1;
  // Sums that steps are added to by turns. Few sums would wait for each other.
  static constexpr int kChains = kStepGroups || Tiling::kWarpRecords * Tiling::kWarpRowTiles <= 2 ? 2 : 1;
  using Products = float[Tiling::kWarpRecords][Tiling::kWarpRowTiles][kChains][4];
  // Whether each warp sums x up by products with ones, rather than one for all.
  static constexpr bool kSumsItself = Tiling::kSumsItself && kLayout.has_minimum;
  using XSums = float[kSumsItself ? Tiling::kWarpRowTiles : 1][kChains][4];
  // Codes stay what the bit trick makes of them, code plus base; the minimum takes base times scale away.
  static constexpr bool kKeepsBase =
      kLayout.bits == 4 && kLayout.has_minimum && std::is_same_v<T, __nv_bfloat16>;

  // The elements of x, of row `lane / 4` of a tile of 8 rows, that belong to steps 2 * quantum and the next:
  // {b0, b1} of the first, then of the second.
  static __device__ __forceinline__ uint4 LoadX(uint32_t x, int row_tile, int quantum, int lane) {
    const int t = lane % 4;
    const uint32_t at = x + static_cast<uint32_t>((row_tile * 8 + lane / 4) * kXPitch + quantum * 64);
    if constexpr (kStepGroups) {
      const uint2 first = LoadShared8(at + static_cast<uint32_t>(t * 8));
      const uint2 second = LoadShared8(at + static_cast<uint32_t>(t * 8 + 32));
      return make_uint4(first.x, first.y, second.x, second.y);
    } else {
      return LoadShared(at + static_cast<uint32_t>(t * 16));
    }
  }

  static __device__ __forceinline__ void Values(uint32_t (&fragments)[4], const uint4 (&words)[kChunks],
                                                int step) {
    if constexpr (kLayout.bits == 4) {
      const uint4& chunk = words[step / 4];
      const int word = step % 4;
      const uint32_t codes = word == 0 ? chunk.x : word == 1 ? chunk.y : word == 2 ? chunk.z : chunk.w;
      if constexpr (kKeepsBase) {
        BasedValuesOf4Bits<T>(fragments, codes);
      } else {
        ValuesOf4Bits<T, kLayout.zero_code()>(fragments, codes);
      }
    } else {
      const uint4& chunk = words[step / 2];
      if (step % 2 == 0) {
        ValuesOf8Bits<T, kLayout.zero_code()>(fragments, chunk.x, chunk.y);
      } else {
        ValuesOf8Bits<T, kLayout.zero_code()>(fragments, chunk.z, chunk.w);
      }
    }
  }

  // Adds the products of a span of groups, times their scales, to the sums. products: [record][row
  // tile][chain]; x_sums: sums of x, where the warp has them itself.
  static __device__ __forceinline__ void AddSpan(
      float (&sums)[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4], const Products& products,
      const XSums& x_sums, uint32_t records, const float* sums_of_x, int span, int lane) {
#pragma unroll
    for (int g = 0; g < kSpanGroups; ++g) {
      const int group = span * kSpanGroups + g;
      float2 scales[Tiling::kWarpRecords];    // of r and r + 8
      float2 minimums[Tiling::kWarpRecords];  // only with minimum
#pragma unroll
      for (int i = 0; i < Tiling::kWarpRecords; ++i) {
        const int at = (lane / 4 * kGroups + group) * kNumbers * 4;
        const uint32_t from =
            records + static_cast<uint32_t>(i * kLayout.record_bytes() + kLayout.code_bytes() + at);
        if constexpr (kLayout.has_minimum) {
          const uint2 both = LoadShared8(from);
          scales[i] = TwoFloats(both.x);
          minimums[i] = TwoFloats(both.y);
          if constexpr (kKeepsBase) {
            minimums[i].x = fmaf(scales[i].x, -BaseOf4Bits<T>(), minimums[i].x);
            minimums[i].y = fmaf(scales[i].y, -BaseOf4Bits<T>(), minimums[i].y);
          }
        } else {
          scales[i] = TwoFloats(LoadShared4(from));
        }
      }
#pragma unroll
      for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
        float2 of_x = make_float2(0.0F, 0.0F);  // of the rows of this lane's results
        if constexpr (kSumsItself) {
          of_x = make_float2(x_sums[tile][g][0], x_sums[tile][g][1]);
          if constexpr (kSpanGroups < kChains) {
            of_x.x += x_sums[tile][1][0];
            of_x.y += x_sums[tile][1][1];
          }
        } else if constexpr (kLayout.has_minimum) {
          of_x =
              *reinterpret_cast<const float2*>(sums_of_x + group * Tiling::kRows + tile * 8 + lane % 4 * 2);
        }
#pragma unroll
        for (int i = 0; i < Tiling::kWarpRecords; ++i) {
          float(&to)[4] = sums[i][tile];
          float product[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            product[j] = products[i][tile][g][j];
            if constexpr (kSpanGroups < kChains) product[j] += products[i][tile][1][j];
          }
          to[0] = fmaf(scales[i].x, product[0], to[0]);
          to[1] = fmaf(scales[i].x, product[1], to[1]);
          to[2] = fmaf(scales[i].y, product[2], to[2]);
          to[3] = fmaf(scales[i].y, product[3], to[3]);
          if constexpr (kLayout.has_minimum) {
            to[0] = fmaf(minimums[i].x, of_x.x, to[0]);
            to[1] = fmaf(minimums[i].x, of_x.y, to[1]);
            to[2] = fmaf(minimums[i].y, of_x.x, to[2]);
            to[3] = fmaf(minimums[i].y, of_x.y, to[3]);
          }
        }
      }
    }
  }

  // records: of the warp's first; sums_of_x: [groups][rows], of the warp's first row.
  static __device__ __forceinline__ void Run(float (&sums)[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4],
                                             uint32_t records, uint32_t x, int first_row_tile,
                                             const float* sums_of_x, int lane) {
    uint4 words[Tiling::kWarpRecords][kChunks];
#pragma unroll
    for (int i = 0; i < Tiling::kWarpRecords; ++i) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        words[i][chunk] =
            LoadShared(records + static_cast<uint32_t>(i * kLayout.record_bytes() + chunk * 512 + lane * 16));
      }
    }
    [[maybe_unused]] const uint32_t ones = TwoOnes<T>();
#pragma unroll
    for (int span = 0; span < kSteps / kSpanSteps; ++span) {
      Products products = {};
      XSums x_sums = {};
#pragma unroll
      for (int quantum = span * kSpanSteps / 2; quantum < (span + 1) * kSpanSteps / 2; ++quantum) {
        uint32_t fragments[2][Tiling::kWarpRecords][4];
        uint4 of_x[Tiling::kWarpRowTiles];
#pragma unroll
        for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
          of_x[tile] = LoadX(x, first_row_tile + tile, quantum, lane);
        }
#pragma unroll
        for (int i = 0; i < Tiling::kWarpRecords; ++i) {
          Values(fragments[0][i], words[i], 2 * quantum);
          Values(fragments[1][i], words[i], 2 * quantum + 1);
        }
        // Neighbouring products have different sums: none waits for the one before it.
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int chain = half * (kChains - 1);
#pragma unroll
          for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
            const uint32_t b0 = half == 0 ? of_x[tile].x : of_x[tile].z;
            const uint32_t b1 = half == 0 ? of_x[tile].y : of_x[tile].w;
#pragma unroll
            for (int i = 0; i < Tiling::kWarpRecords; ++i) {
              const auto& values = fragments[half][i];
              MultiplyAdd<T>(products[i][tile][chain], values[0], values[1], values[2], values[3], b0, b1);
            }
            if constexpr (kSumsItself) MultiplyAdd<T>(x_sums[tile][chain], ones, ones, ones, ones, b0, b1);
          }
        }
      }
      AddSpan(sums, products, x_sums, records, sums_of_x, span, lane);
    }
  }

  // sums_of_x[groups][rows] of a slice, by products with ones: exact terms, in fp32. All warps.
  static __device__ __forceinline__ void SumX(float* sums_of_x, uint32_t x, int warp, int lane) {
    const uint32_t ones = TwoOnes<T>();
    for (int tile = warp; tile < Tiling::kRows / 8; tile += kQuantizedWarps) {
      float products[kGroups][4] = {};
      float second[kGroups][4] = {};  // of every other step, so that none waits for the one before it
#pragma unroll
      for (int quantum = 0; quantum < kSteps / 2; ++quantum) {
        const uint4 of_x = LoadX(x, tile, quantum, lane);
        MultiplyAdd<T>(products[2 * quantum / kStepsPerGroup], ones, ones, ones, ones, of_x.x, of_x.y);
        MultiplyAdd<T>(second[(2 * quantum + 1) / kStepsPerGroup], ones, ones, ones, ones, of_x.z, of_x.w);
      }
      // All outputs of this product are the same: those of lanes 0 to 3 are stored.
      if (lane < 4) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          *reinterpret_cast<float2*>(sums_of_x + g * Tiling::kRows + tile * 8 + lane * 2) =
              make_float2(products[g][0] + second[g][0], products[g][1] + second[g][1]);
        }
      }
    }
  }
};

// Brings slices into the ring. Every thread copies the same places of every stage.
template <typename Format, typename Tiling>
struct SliceRequests {
  using Plan = SharedPlan<Format, Tiling>;
  static constexpr int kSliceSize = Format::kLayout.slice_size();

  uint64_t policy;
  const unsigned char* records;  // of the block's first panel
  int64_t panel_bytes;
  int num_panels;  // 1 or 2
  const unsigned char* x;
  int64_t x_stride_bytes;
  int rows;
  int in_features;

  __device__ __forceinline__ void Records(uint32_t stage, int slice, int thread) const {
    constexpr int kPanelChunks = Plan::kRecordsBytes / 2 / 16;
    const unsigned char* from = records + static_cast<int64_t>(slice) * (Plan::kRecordsBytes / 2);
#pragma unroll
    for (int begin = 0; begin < 2 * kPanelChunks; begin += kQuantizedThreads) {
      const int chunk = begin + thread;
      if (chunk >= 2 * kPanelChunks) break;
      const int panel = chunk / kPanelChunks;
      const int64_t offset = panel * panel_bytes + (chunk - panel * kPanelChunks) * 16;
      CopyAsync(stage + static_cast<uint32_t>(chunk * 16), from + (panel < num_panels ? offset : 0),
                panel < num_panels, policy);
    }
  }

  __device__ __forceinline__ void X(uint32_t stage, int slice, int thread) const {
    constexpr int kRowChunks = kSliceSize / 8;
    constexpr int kNumChunks = Tiling::kRows * kRowChunks;
    const uint32_t to = stage + Plan::kRecordsBytes;
#pragma unroll
    for (int begin = 0; begin < kNumChunks; begin += kQuantizedThreads) {
      const int number = begin + thread;
      if (number >= kNumChunks) break;
      const int row = number / kRowChunks;
      const int chunk = number % kRowChunks;
      const int k = slice * kSliceSize + chunk * 8;
      const bool valid = row < rows && k < in_features;
      const auto at = static_cast<uint32_t>(row * Plan::kXPitch + chunk * 16);
      CopyAsync(to + at, x + (valid ? row * x_stride_bytes + k * 2 : 0), valid);
    }
  }
};

// Brings the records of slices by the copy engine where there is one: one thread asks, and a slot's barrier
// says when they are there. (Rows of x are too short for that: 8 of 256 bytes take longer than 4 KiB of
// records.)
template <typename Format, typename Tiling>
struct RecordRequests {
  using Plan = SharedPlan<Format, Tiling>;
#if __CUDA_ARCH__ >= 900
  static constexpr bool kBulk = true;
#else
  static constexpr bool kBulk = false;
#endif

  const SliceRequests<Format, Tiling>& what;
  uint32_t barriers;  // kDepth of 8 bytes, in shared memory

  __device__ __forceinline__ uint32_t BarrierOf(int slot) const {
    return barriers + static_cast<uint32_t>(slot * 8);
  }

  // All threads, before the first request.
  __device__ __forceinline__ void Prepare(int thread) const {
    if constexpr (kBulk) {
      if (thread == 0) {
        for (int slot = 0; slot < Plan::kDepth; ++slot) {
          asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(BarrierOf(slot)) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      }
      __syncthreads();
    }
  }

  // All threads; nobody may still read the slot.
  __device__ __forceinline__ void Request(uint32_t stage, int slot, int slice, int thread) const {
    if constexpr (kBulk) {
      if (thread != 0) return;
      constexpr uint32_t kPanelBytes = Plan::kRecordsBytes / 2;
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(BarrierOf(slot)),
                   "r"(static_cast<uint32_t>(what.num_panels) * kPanelBytes)
                   : "memory");
      const unsigned char* from = what.records + static_cast<int64_t>(slice) * kPanelBytes;
      for (int panel = 0; panel < what.num_panels; ++panel) {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], "
            "%2, "
            "[%3], %4;" ::"r"(stage + static_cast<uint32_t>(panel) * kPanelBytes),
            "l"(from + panel * what.panel_bytes), "r"(kPanelBytes), "r"(BarrierOf(slot)), "l"(what.policy)
            : "memory");
      }
    } else {
      what.Records(stage, slice, thread);
    }
  }

  // round: how often the slot has been waited for. Where records come as x does, waiting for x is enough.
  __device__ __forceinline__ void WaitFor(int slot, int round) const {
    if constexpr (kBulk) {
      asm volatile(
          "{\n"
          ".reg .pred there;\n"
          "again:\n"
          "mbarrier.try_wait.parity.shared.b64 there, [%0], %1;\n"
          "@!there bra again;\n"
          "}\n" ::"r"(BarrierOf(slot)),
          "r"(round % 2)
          : "memory");
    }
  }
};

// Sums of a block's part of the slices become those of all: true for the block that arrives last, whose sums
// they then are. sums: shared memory, [rows][pitch].
template <int kRows, int kPitch>
__device__ __forceinline__ bool AddParts(float* sums, const QuantizedProduct& product, int unit, int split,
                                         int rows, int thread) {
  constexpr int kRowVectors = kBlockOutputs / 4;
  constexpr int kPartFloats = kRows * kBlockOutputs;
  auto* parts = reinterpret_cast<float4*>(product.workspace.partials +
                                          static_cast<int64_t>(unit) * product.num_splits * kPartFloats);
  float4* own = parts + static_cast<int64_t>(split) * (kPartFloats / 4);
  for (int i = thread; i < rows * kRowVectors; i += kQuantizedThreads) {
    own[i] = *reinterpret_cast<const float4*>(sums + i / kRowVectors * kPitch + i % kRowVectors * 4);
  }
  __threadfence();
  __shared__ bool is_last;
  __syncthreads();
  if (thread == 0) {
    is_last =
        atomicAdd(product.workspace.counters + unit, 1U) == static_cast<uint32_t>(product.num_splits - 1);
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  for (int i = thread; i < rows * kRowVectors; i += kQuantizedThreads) {
    float4 total = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll 8
    for (int s = 0; s < product.num_splits; ++s) {
      const float4 part = __ldcg(parts + static_cast<int64_t>(s) * (kPartFloats / 4) + i);
      total.x += part.x;
      total.y += part.y;
      total.z += part.z;
      total.w += part.w;
    }
    *reinterpret_cast<float4*>(sums + i / kRowVectors * kPitch + i % kRowVectors * 4) = total;
  }
  if (thread == 0) product.workspace.counters[unit] = 0;
  __syncthreads();
  return true;
}

#endif

// Grid: blocks of rows, then of outputs, then parts of the slices.
template <typename T, typename Format, typename Tiling>
__global__ void __launch_bounds__(kQuantizedThreads, Tiling::kBlocksPerSm)
    QuantizedLinearKernel(const QuantizedProduct product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Plan = SharedPlan<Format, Tiling>;
  using Slice = SliceProduct<T, Format, Tiling>;
  extern __shared__ __align__(128) unsigned char shared[];
  AllowSuccessors();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int output_warp = warp % Tiling::kOutputWarps;
  const int row_warp = warp / Tiling::kOutputWarps;
  const int first_row = static_cast<int>(blockIdx.x) * Tiling::kRows;
  const int rows = min(Tiling::kRows, product.rows - first_row);
  const int first_output = static_cast<int>(blockIdx.y) * kBlockOutputs;
  const int split = static_cast<int>(blockIdx.z);
  const int first_slice =
      static_cast<int>(static_cast<int64_t>(product.num_slices) * split / product.num_splits);
  const int end_slice =
      static_cast<int>(static_cast<int64_t>(product.num_slices) * (split + 1) / product.num_splits);
  const int num_slices = end_slice - first_slice;

  SliceRequests<Format, Tiling> requests;
  requests.policy = StreamingPolicy();
  requests.panel_bytes = static_cast<int64_t>(product.num_slices) * (Plan::kRecordsBytes / 2);
  requests.records = static_cast<const unsigned char*>(product.records) +
                     static_cast<int64_t>(first_output / kCodePanelOutputs) * requests.panel_bytes;
  requests.num_panels = product.out_features - first_output > kCodePanelOutputs ? 2 : 1;
  requests.x_stride_bytes = product.x_stride * 2;
  requests.x = static_cast<const unsigned char*>(product.x) + first_row * requests.x_stride_bytes;
  requests.rows = rows;
  requests.in_features = product.in_features;

  const auto ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  auto* sums_of_x = reinterpret_cast<float*>(shared + Plan::kDepth * Plan::kStageBytes);
  const auto stage_at = [ring](int slot) { return ring + static_cast<uint32_t>(slot * Plan::kStageBytes); };
  float sums[Tiling::kWarpRecords][Tiling::kWarpRowTiles][4] = {};
  const int first_row_tile = row_warp * Tiling::kWarpRowTiles;
  const auto multiply = [&](int i, int slot) {
    Slice::Run(
        sums, stage_at(slot) + static_cast<uint32_t>(output_warp * Tiling::kWarpRecords * Plan::kRecordBytes),
        stage_at(slot) + Plan::kRecordsBytes, first_row_tile,
        sums_of_x + i % 2 * Plan::kSumsOfX + first_row_tile * 8, lane);
  };
  __shared__ __align__(8) uint64_t barriers[Plan::kDepth];
  const RecordRequests<Format, Tiling> records = {requests,
                                                  static_cast<uint32_t>(__cvta_generic_to_shared(barriers))};
  records.Prepare(thread);
#pragma unroll
  for (int i = 0; i < Plan::kDepth - 1; ++i) {
    if (i < num_slices) records.Request(stage_at(i), i, first_slice + i, thread);
  }
  // Everything above is weights; x, y and the workspace belong to other kernels until here.
  WaitForPredecessors();
#pragma unroll
  for (int i = 0; i < Plan::kDepth - 1; ++i) {
    if (i < num_slices) requests.X(stage_at(i), first_slice + i, thread);
    CommitCopies();
  }
  if constexpr (Plan::kHasSumsOfX) {
    WaitForCopies<Plan::kDepth - 2>();
    __syncthreads();
    Slice::SumX(sums_of_x, stage_at(0) + Plan::kRecordsBytes, warp, lane);
  }
  int slot = 0;
  int round = 0;
#pragma unroll 1
  for (int i = 0; i < num_slices; ++i) {
    records.WaitFor(slot, round);
    // With sums of x that of the slice after this one has to be there too: it is summed up meanwhile.
    WaitForCopies<Plan::kDepth - (Plan::kHasSumsOfX ? 3 : 2)>();
    __syncthreads();  // it is there for all, and all are done with the slice before
    if (const int next = i + Plan::kDepth - 1; next < num_slices) {
      const int free_slot = slot == 0 ? Plan::kDepth - 1 : slot - 1;
      records.Request(stage_at(free_slot), free_slot, first_slice + next, thread);
      requests.X(stage_at(free_slot), first_slice + next, thread);
    }
    CommitCopies();
    const int next_slot = slot + 1 == Plan::kDepth ? 0 : slot + 1;
    if constexpr (Plan::kHasSumsOfX) {
      if (i + 1 < num_slices) {
        Slice::SumX(sums_of_x + (i + 1) % 2 * Plan::kSumsOfX, stage_at(next_slot) + Plan::kRecordsBytes, warp,
                    lane);
      }
    }
    multiply(i, slot);
    if (next_slot == 0) ++round;
    slot = next_slot;
  }
  WaitForCopies<0>();

  // [rows][128 outputs] in shared memory, from where neighbours are written together.
  __syncthreads();
  auto* block_sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < Tiling::kWarpRecords; ++i) {
#pragma unroll
    for (int tile = 0; tile < Tiling::kWarpRowTiles; ++tile) {
      float* to = block_sums +
                  ((row_warp * Tiling::kWarpRowTiles + tile) * 8 + lane % 4 * 2) * Plan::kSumsPitch +
                  (output_warp * Tiling::kWarpRecords + i) * kRecordOutputs + lane / 4;
      to[0] = sums[i][tile][0];
      to[Plan::kSumsPitch] = sums[i][tile][1];
      to[8] = sums[i][tile][2];
      to[Plan::kSumsPitch + 8] = sums[i][tile][3];
    }
  }
  __syncthreads();
  if (product.num_splits > 1) {
    const int unit = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
    if (!AddParts<Tiling::kRows, Plan::kSumsPitch>(block_sums, product, unit, split, rows, thread)) return;
  }
  const int column = thread % kBlockOutputs;
  const int output = first_output + column;
  if (output >= product.out_features) return;
  const float factor = product.factors[output];
  const float bias = product.bias == nullptr ? 0.0F : product.bias[output];
  for (int row = thread / kBlockOutputs; row < rows; row += kQuantizedThreads / kBlockOutputs) {
    const float value = fmaf(block_sums[row * Plan::kSumsPitch + column], factor, bias);
    const int64_t at = (first_row + row) * product.y_stride + output;
    if (product.y_is_f32) {
      static_cast<float*>(product.y)[at] = value;
    } else {
      StoreRounded(static_cast<T*>(product.y) + at, value);
    }
  }
#else
  __trap();
#endif
}

template <typename T, typename Format, typename Tiling>
void LaunchTiling(CudaStream& stream, QuantizedProduct product) {
  using Plan = SharedPlan<Format, Tiling>;
  auto* kernel = QuantizedLinearKernel<T, Format, Tiling>;
  static const int blocks_per_sm = [kernel] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes));
    // Room for blocks of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    int blocks = 0;
    TANDEM_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kQuantizedThreads, Plan::kBytes));
    return std::max(blocks, 1);
  }();
  const int row_blocks = (product.rows + Tiling::kRows - 1) / Tiling::kRows;
  const int output_blocks = (product.out_features + kBlockOutputs - 1) / kBlockOutputs;
  const int64_t units = static_cast<int64_t>(row_blocks) * output_blocks;
  const int splits = NumParts({.units = units,
                               .at_once = static_cast<int64_t>(stream.target().num_sms) * blocks_per_sm,
                               .num_slices = product.num_slices,
                               .rows = Tiling::kRows,
                               .unit_bytes = int64_t{Tiling::kRows} * kBlockOutputs * 4});
  product.num_splits = splits;
  TANDEM_CHECK(splits == 1 || product.workspace.partials != nullptr, "quantized linear: no workspace");
  LaunchKernel("quantized linear", kernel,
               dim3(static_cast<unsigned>(row_blocks), static_cast<unsigned>(output_blocks),
                    static_cast<unsigned>(splits)),
               dim3(kQuantizedThreads), Plan::kBytes, stream, product);
}

// The tiling for a number of rows: records and tiles of 8 rows of a warp, warps with the same outputs, blocks
// of an SM, bytes of shared memory.
template <typename T, typename Format>
void LaunchFormat(CudaStream& stream, const QuantizedProduct& product) {
  using Rows8 = BlockTiling<1, 1, 1, 4, 54 << 10>;
  using Rows16 = BlockTiling<1, 2, 1, 2, 96 << 10>;
  using Rows32 = BlockTiling<1, 4, 1, 2, 96 << 10>;
  using Rows64 = BlockTiling<2, 4, 2, 2, 96 << 10>;
  using Rows128 = BlockTiling<2, 8, 2, 1, 96 << 10>;
  if (product.rows <= Rows8::kRows) return LaunchTiling<T, Format, Rows8>(stream, product);
  if (product.rows <= Rows16::kRows) return LaunchTiling<T, Format, Rows16>(stream, product);
  if (product.rows <= Rows32::kRows) return LaunchTiling<T, Format, Rows32>(stream, product);
  // Some GPUs (8.6, 8.9) have no room for the longest slices of 128 rows.
  if (product.rows <= Rows64::kRows ||
      SharedPlan<Format, Rows128>::kBytes > stream.target().max_shared_bytes_per_block) {
    return LaunchTiling<T, Format, Rows64>(stream, product);
  }
  LaunchTiling<T, Format, Rows128>(stream, product);
}

template <typename T, int kBits, int kGroupSize>
void LaunchGroupSize(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  layout.has_minimum ? LaunchFormat<T, RecordFormat<kBits, kGroupSize, true>>(stream, product)
                     : LaunchFormat<T, RecordFormat<kBits, kGroupSize, false>>(stream, product);
}

// kGroupSizes: that MakeCodeLayout gives to codes of kBits.
template <typename T, int kBits, int... kGroupSizes>
void LaunchCodes(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  const bool launched = ((layout.group_size == kGroupSizes &&
                          (LaunchGroupSize<T, kBits, kGroupSizes>(stream, layout, product), true)) ||
                         ...);
  TANDEM_CHECK(launched, "codes of {} bits in groups of {}", kBits, layout.group_size);
}

template <typename T>
void LaunchInt4(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  LaunchCodes<T, 4, 16, 32, 128>(stream, layout, product);
}
template <typename T>
void LaunchInt8(CudaStream& stream, const CodeLayout& layout, const QuantizedProduct& product) {
  LaunchCodes<T, 8, 16, 32, 64>(stream, layout, product);
}

}  // namespace tandem
