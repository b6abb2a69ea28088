// Products of quantized_linear.h of up to 8 rows, limited by memory and by what a product must wait for.
//
// In the frame of skinny_tile.cuh, with the slices of code_layout.h: a warp streams records. At the memory's
// rate an SM has some 200 instructions for a KiB of records, over all its warps. So codes are multiplied as
// small numbers (code_values.cuh), one or two instructions for two of them, and a group's sums of x, which
// what stands for zero and minimums are multiplied by, are made once for all tiles if x stays in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cuda/kernel_launch.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/code_values.cuh"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/skinny_tile.cuh"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/register_loads.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

template <typename T, typename Format>
struct SkinnyCodesShape {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kRecordBytes = kLayout.record_bytes();
  static constexpr int kRecordChunks = kRecordBytes / 16;
  static constexpr int kSlice = kLayout.slice_size();
  static constexpr int kGroups = kLayout.groups_per_slice();
  static constexpr int kNumbers = kGroups * kLayout.numbers_per_group();  // of r and r + 8 each
  static constexpr int kChunks = kLayout.code_bytes() / 512;              // of a lane, 16 bytes each
  // A quantum is two steps of the tensor core: 32 elements.
  static constexpr int kQuanta = kSlice / 32;
  static constexpr int kGroupQuanta = kQuanta / kGroups;  // 0: groups of 16
  // Slices of x in registers, a set. For rows of 4096 elements that is all of it.
  static constexpr int kSlicesOfX = 16 / kQuanta;
  // Low and high nibbles of two steps each are multiplied together.
  static constexpr bool kByNibbles = kLayout.bits == 4 && kGroupQuanta > 0;
  // The last slice has groups without elements: their codes, scales and minimums are 0.
  static constexpr bool kHasEmptyGroups = kLayout.group_size < kSlice;

  // A warp's shared memory: records, sums of a set of x, 32 elements of 8 rows. Sums: {row 2 * member, row 2
  // * member + 1} of [slice][member][group].
  static constexpr int kSumsOfSlice = 4 * kGroups * static_cast<int>(sizeof(float2));
  static constexpr int kExchangeBytes = static_cast<int>(kMaxSkinnyCodeRows) * 32 * 2;
  static constexpr int kDepth =
      (kSkinnyRingBytes - kSlicesOfX * kSumsOfSlice - kExchangeBytes) / kRecordBytes;
  static constexpr int kSumsBegin = kDepth * kRecordBytes;
  static constexpr int kExchangeBegin = kSumsBegin + kSlicesOfX * kSumsOfSlice;
  static_assert(kDepth >= 8 && kSumsBegin % 16 == 0);
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// x of bf16 is multiplied by 2^64, which keeps its products with the smallest numbers of bf16, 2^-133 times a
// code, in the middle of what fp32 holds.
constexpr float kScaleOfBf16 = 0x1p64F;

// What the sums of codes as small numbers have to be multiplied by.
template <typename T, typename Shape>
__device__ __forceinline__ constexpr float InverseUnit() {
  constexpr float kScaleOfX = std::is_same_v<T, __half> ? 1.0F : kScaleOfBf16;
  return SmallNumbers<T>::kInverse / kScaleOfX * (Shape::kLayout.bits == 4 ? 8.0F : 128.0F);
}

// The places in the exchange of 8 rows of 32 elements, 4 chunks of 16 bytes each: no bank is met twice when 8
// neighbouring lanes write, nor when a matrix is read.
__device__ __forceinline__ uint32_t PlaceInExchange(int row, int chunk) {
  return static_cast<uint32_t>(row * 64 + (chunk ^ (row / 2)) * 16);
}

// A lane's 8 elements of each 32 of a slice become the tensor core's fragments, and their sums by groups are
// stored. Fragments of a quantum: b0 and b1 of either step, or (kByNibbles) b0 of both and then b1 of both.
template <typename T, typename Shape>
__device__ __forceinline__ void PrepareX(uint4 (&x)[Shape::kQuanta], uint32_t exchange, uint32_t sums_of_x,
                                         int lane) {
  const uint32_t to = exchange + PlaceInExchange(lane / 4, lane % 4);
  const int matrix = lane / 8;
  const int chunk = Shape::kByNibbles ? matrix % 2 * 2 + matrix / 2 : matrix;
  const uint32_t from = exchange + PlaceInExchange(lane % 8, chunk);
#pragma unroll
  for (uint4& quantum : x) {
    StoreShared(to, quantum);
    __syncwarp();
    quantum = LoadMatrices(from);
    __syncwarp();  // all lanes have read it
  }
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 two_scales = __float2bfloat162_rn(kScaleOfBf16);
    const auto scale = [two_scales](uint32_t& pair) {
      const __nv_bfloat162 scaled = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), two_scales);
      pair = *reinterpret_cast<const uint32_t*>(&scaled);
    };
#pragma unroll
    for (uint4& quantum : x) {
      scale(quantum.x);
      scale(quantum.y);
      scale(quantum.z);
      scale(quantum.w);
    }
  }
  // In units of codes; with the sign of what is to be added.
  constexpr float kFactor = !Shape::kLayout.has_minimum ? -1.0F : Shape::kLayout.bits == 4 ? 0.125F : 0x1p-7F;
  constexpr uint32_t kOnes = SmallNumbers<T>::kTwoOnes;
  const auto add = [](float(&sums)[4], uint32_t b0, uint32_t b1) {
    MultiplyAdd<T>(sums, kOnes, kOnes, kOnes, kOnes, b0, b1);
  };
#pragma unroll
  for (int group = 0; group < Shape::kGroups; ++group) {
    float sums[2][4] = {};
    if constexpr (Shape::kGroupQuanta == 0) {
      const uint4& quantum = x[group / 2];
      add(sums[0], group % 2 == 0 ? quantum.x : quantum.z, group % 2 == 0 ? quantum.y : quantum.w);
    } else {
#pragma unroll
      for (int i = 0; i < Shape::kGroupQuanta; ++i) {
        const uint4& quantum = x[group * Shape::kGroupQuanta + i];
        add(sums[0], quantum.x, quantum.y);
        add(sums[1], quantum.z, quantum.w);
      }
    }
    // They are the same for all outputs.
    if (lane < 4) {
      StoreShared8(sums_of_x + static_cast<uint32_t>((lane * Shape::kGroups + group) * 8),
                   make_float2((sums[0][0] + sums[1][0]) * kFactor, (sums[0][1] + sums[1][1]) * kFactor));
    }
  }
}

// products[16 outputs, 8 rows] of a group: codes times x.
template <typename T, typename Shape>
__device__ __forceinline__ void MultiplyGroup(float (&products)[4], const uint4 (&chunks)[Shape::kChunks],
                                              const uint4 (&x)[Shape::kQuanta], int group) {
  using Small = SmallNumbers<T>;
  const auto word_of = [&](int i) { return WordOf(chunks[i / 4], i % 4); };
  if constexpr (Shape::kByNibbles) {
    float low[4] = {};
    float high[4] = {};
#pragma unroll
    for (int i = 0; i < Shape::kGroupQuanta; ++i) {
      const int quantum = group * Shape::kGroupQuanta + i;
      const uint32_t words[2] = {word_of(2 * quantum), word_of(2 * quantum + 1)};
      const uint32_t first[2] = {Small::First(words[0]), Small::First(words[1])};
      const uint32_t second[2] = {Small::Second(words[0]), Small::Second(words[1])};
      MultiplyAdd<T>(low, first[0] & Small::kLow, second[0] & Small::kLow, first[1] & Small::kLow,
                     second[1] & Small::kLow, x[quantum].x, x[quantum].y);
      MultiplyAdd<T>(high, first[0] & Small::kHigh, second[0] & Small::kHigh, first[1] & Small::kHigh,
                     second[1] & Small::kHigh, x[quantum].z, x[quantum].w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) products[i] = fmaf(low[i], 16.0F, high[i]);
    return;
  }
  constexpr int kSteps = Shape::kGroupQuanta == 0 ? 1 : Shape::kGroupQuanta * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) products[i] = 0.0F;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int step = group * kSteps + i;
    const uint4& quantum = x[step / 2];
    const uint32_t b0 = step % 2 == 0 ? quantum.x : quantum.z;
    const uint32_t b1 = step % 2 == 0 ? quantum.y : quantum.w;
    if constexpr (Shape::kLayout.bits == 4) {
      const uint32_t word = word_of(step);
      MultiplyAdd<T>(products, word << (4 + Small::kShift) & Small::kHigh,
                     word >> (4 - Small::kShift) & Small::kHigh, Small::First(word) & Small::kHigh,
                     Small::Second(word) & Small::kHigh, b0, b1);
    } else {
      const uint32_t words[2] = {word_of(2 * step), word_of(2 * step + 1)};
      MultiplyAdd<T>(products, Small::First(words[0]) & Small::kByte, Small::Second(words[0]) & Small::kByte,
                     Small::First(words[1]) & Small::kByte, Small::Second(words[1]) & Small::kByte, b0, b1);
    }
  }
}

// totals[16 outputs, 8 rows] += a record's product. record: the lane's place in it; sums_of_x: of the slice.
template <typename T, typename Shape>
__device__ __forceinline__ void AddRecord(float (&totals)[4], uint32_t record,
                                          const uint4 (&x)[Shape::kQuanta], uint32_t sums_of_x, int lane) {
  constexpr CodeLayout kLayout = Shape::kLayout;
  uint4 chunks[Shape::kChunks];
#pragma unroll
  for (int i = 0; i < Shape::kChunks; ++i) {
    chunks[i] = LoadShared(record + static_cast<uint32_t>(i * 512));
  }
  uint32_t numbers[Shape::kNumbers];
  LoadSharedWords(numbers, record + static_cast<uint32_t>(kLayout.code_bytes() +
                                                          lane / 4 * Shape::kNumbers * 4 - lane * 16));
  uint32_t sums[Shape::kGroups * 2];
  LoadSharedWords(sums, sums_of_x + static_cast<uint32_t>(lane % 4 * Shape::kGroups * 8));
#pragma unroll
  for (int group = 0; group < Shape::kGroups; ++group) {
    float products[4];
    MultiplyGroup<T, Shape>(products, chunks, x, group);
    const float of_x[2] = {__uint_as_float(sums[group * 2]), __uint_as_float(sums[group * 2 + 1])};
    const auto number = [&](int i) {
      return __half22float2(
          *reinterpret_cast<const __half2*>(&numbers[group * kLayout.numbers_per_group() + i]));
    };
    const float2 scales = number(0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (!kLayout.has_minimum) products[i] += of_x[i % 2];
      totals[i] = fmaf(i < 2 ? scales.x : scales.y, products[i], totals[i]);
    }
    if constexpr (kLayout.has_minimum) {
      const float2 minimums = number(1);
#pragma unroll
      for (int i = 0; i < 4; ++i) totals[i] = fmaf(i < 2 ? minimums.x : minimums.y, of_x[i % 2], totals[i]);
    }
  }
}

#endif

// kHasSets: x of a tile is several sets, of which each tile loads all; else one set stays in registers.
template <typename T, typename Format, bool kHasSets>
__global__ void __launch_bounds__(kSkinnyThreads, 2) SkinnyCodesKernel(const QuantizedProduct product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Shape = SkinnyCodesShape<T, Format>;
  constexpr int kWarps = kSkinnyWarps;
  constexpr int kSlicesOfX = Shape::kSlicesOfX;
  extern __shared__ __align__(128) unsigned char shared[];

  AllowSuccessors();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const SkinnyShare share(product, warp);
  const int warp_slices = share.warp_slices;

  // Requests: lane l brings chunks l, l + 32, ... of 16 bytes of a record.
  const uint32_t ring = static_cast<uint32_t>(__cvta_generic_to_shared(shared)) +
                        static_cast<uint32_t>(warp * kSkinnyRingBytes);
  const uint64_t policy = StreamingPolicy();
  int request_tile = share.first_tile;
  int slices_to_request = 0;  // of the tile; 0: no tile is left
  const unsigned char* request_from = nullptr;
  const auto begin_tile_of_requests = [&] {
    const int64_t place =
        (static_cast<int64_t>(request_tile / kPanelRecords) * product.num_slices + warp) * kPanelRecords +
        request_tile % kPanelRecords;
    request_from =
        static_cast<const unsigned char*>(product.records) + place * Shape::kRecordBytes + lane * 16;
    slices_to_request = request_tile < share.num_tiles ? warp_slices : 0;
  };
  begin_tile_of_requests();
  // record: the lane's place in it.
  const auto request_record = [&](uint32_t record) {
#pragma unroll
    for (int chunk = 0; chunk < Shape::kRecordChunks; chunk += 32) {
      const uint32_t to = record + static_cast<uint32_t>(chunk * 16);
      if (chunk + 32 <= Shape::kRecordChunks) {
        CopyAsync(to, request_from + chunk * 16, true, policy);
      } else {
        if (chunk + lane < Shape::kRecordChunks) CopyAsync(to, request_from + chunk * 16, true, policy);
      }
    }
    request_from += kWarps * kPanelRecords * Shape::kRecordBytes;
    --slices_to_request;
    if (slices_to_request == 0) {
      request_tile += share.tile_step;
      begin_tile_of_requests();
    }
  };
  const uint32_t ring_of_lane = ring + static_cast<uint32_t>(lane * 16);
#pragma unroll
  for (int slot = 0; slot < Shape::kDepth; ++slot) {
    if (slices_to_request > 0) {
      request_record(ring_of_lane + static_cast<uint32_t>(slot * Shape::kRecordBytes));
    }
    CommitCopies();
  }

  // Everything above is weights; x and y belong to other kernels until here.
  WaitForPredecessors();

  const int row = lane / 4;
  const int first_element = warp * Shape::kSlice + lane % 4 * 8;
  const T* x = static_cast<const T*>(product.x) + row * product.x_stride + first_element;
  const bool has_row = row < product.rows;
  // Zeros in lanes that have no row.
  uint4 xs[kSlicesOfX][Shape::kQuanta] = {};
  // number: of the warp's slices.
  const auto load_x = [&](uint4(&to)[Shape::kQuanta], int number) {
    const T* from = x + number * (kWarps * Shape::kSlice);
    const int left = product.in_features - first_element - number * (kWarps * Shape::kSlice);
#pragma unroll
    for (int i = 0; i < Shape::kQuanta; ++i) {
      if constexpr (Shape::kHasEmptyGroups) to[i] = make_uint4(0, 0, 0, 0);
      if (has_row && (!Shape::kHasEmptyGroups || i * 32 < left)) {
        to[i] = *reinterpret_cast<const uint4*>(from + i * 32);
      }
    }
  };
  const auto load_first_x = [&] {
#pragma unroll
    for (int i = 0; i < kSlicesOfX; ++i) {
      if (i < warp_slices) load_x(xs[i], i);
    }
  };
  auto* sums_of_warps = reinterpret_cast<float*>(shared + kWarps * kSkinnyRingBytes);
  const uint32_t end_of_ring = ring_of_lane + Shape::kSumsBegin;

  load_first_x();
  uint32_t record = ring_of_lane;
  for (int tile = share.first_tile; tile < share.num_tiles; tile += share.tile_step) {
    const SkinnyResult result(product, tile, thread, /*has_factor=*/true);
    float totals[4] = {};
    for (int first = 0; first < (kHasSets ? warp_slices : 1); first += kSlicesOfX) {
      const bool is_new_set = kHasSets || tile == share.first_tile;
#pragma unroll
      for (int i = 0; i < kSlicesOfX; ++i) {
        if (first + i >= warp_slices) break;
        const uint32_t sums_of_x = ring + static_cast<uint32_t>(Shape::kSumsBegin + i * Shape::kSumsOfSlice);
        // One by one, so that the ring soon has room for further requests.
        if (is_new_set) PrepareX<T, Shape>(xs[i], ring + Shape::kExchangeBegin, sums_of_x, lane);
        WaitForCopies<Shape::kDepth - 1>();
        __syncwarp();
        AddRecord<T, Shape>(totals, record, xs[i], sums_of_x, lane);
        __syncwarp();  // all lanes have read the record
        if (slices_to_request > 0) request_record(record);
        CommitCopies();
        record += Shape::kRecordBytes;
        if (record == end_of_ring) record = ring_of_lane;
        if constexpr (kHasSets) {
          if (first + i + kSlicesOfX < warp_slices) load_x(xs[i], first + i + kSlicesOfX);
        }
      }
    }
    if (kHasSets && tile + share.tile_step < share.num_tiles) load_first_x();
    StoreSkinnyTile<T>(product, result, tile, sums_of_warps, totals, InverseUnit<T, Shape>());
  }
#else
  __trap();
#endif
}

template <typename T, typename Format>
void LaunchSkinnyCodes(CudaStream& stream, const QuantizedProduct& product) {
  const bool has_sets = product.num_slices > kSkinnyWarps * SkinnyCodesShape<T, Format>::kSlicesOfX;
  has_sets ? LaunchSkinny<SkinnyCodesKernel<T, Format, true>>("skinny codes", stream, product)
           : LaunchSkinny<SkinnyCodesKernel<T, Format, false>>("skinny codes", stream, product);
}

}  // namespace tandem
