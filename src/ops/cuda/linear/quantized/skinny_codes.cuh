// Products of quantized_linear.h of up to 8 rows, limited by memory and by what a product must wait for.
//
// A block computes tiles of 16 outputs for all rows, one after the other. Its warps divide a tile's slices:
// warp w takes slices w, w + 8, w + 16, ... Each warp streams the records of its slices of all its tiles
// through a ring of its own in shared memory, so no warp waits for another but at the end of a tile, where
// their sums are added in fixed order: as skinny_linear.cu does with values.
//
// Codes are multiplied as bytes, without becoming numbers, by an x of integers (integer_rows.cuh). A warp
// makes these of 512 elements of a row at a time, a set, with a unit for each: once if its slices are one
// set, or as many as it keeps.
//
// The first records are requested before the predecessors have ended. A block takes less than half of an SM's
// shared memory and two work on an SM, so that the next kernel's blocks become resident, and fill their
// rings, as this one's end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/per_gpu.h"
#include "ops/cuda/linear/gate_up_order.h"
#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/integer_rows.cuh"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/rows/silu.h"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

constexpr int kSkinnyCodesThreads = kSkinnyCodesWarps * 32;
static_assert(kMaxSkinnyCodeRows == 8);  // the width of the tensor core's product

// kMostRows: 1, 2, 4 or 8. The tensor core's 8 columns are the rows' high and low bytes in turn; 8 rows take
// two products. Lane 4 * octet + q of a warp has column `octet` of x, and sums of outputs octet and octet + 8
// of columns 2q and 2q + 1.
template <typename Format, int kMostRows>
struct SkinnyCodesShape {
  static constexpr CodeLayout kLayout = Format::kLayout;
  static constexpr int kRows = kMostRows;
  static constexpr int kRecordBytes = kLayout.record_bytes();
  // From one of a warp's records of a tile to the next, in records and bytes.
  static constexpr int kStride = kSkinnyCodesWarps * kPanelRecords;
  static constexpr int kStrideBytes = kStride * kRecordBytes;
  static constexpr int kGroups = kLayout.groups_per_slice();
  static constexpr int kWords = kLayout.code_bytes() / 512;  // of a lane, 16 bytes each

  // Of x. A piece is 32 elements, which are one k of the tensor core.
  static constexpr int kPieces = kLayout.slice_size() / 32;
  static constexpr int kSetPieces = 16;
  static constexpr int kSetSlices = kSetPieces / kPieces;
  static constexpr int kSetGroups = kSetSlices * kGroups;
  // 16 bytes a lane and step are 8 pieces of rows. A lane has neighbours in two steps.
  static constexpr int kPiecesOfStep = 8 / kRows;
  static constexpr int kSetSteps = kSetPieces / kPiecesOfStep;
  static constexpr int kTurnSteps = kRows == 8 ? 2 : kSetSteps;  // whose lanes exchange at a time
  static constexpr int kProducts = kRows == 8 ? 2 : 1;
  static constexpr int kRowsOfLane = kProducts;
  static constexpr int kSums = 2 * kRowsOfLane;  // of a lane: output octet, then octet + 8
  // Of these sets fragments are kept for all tiles, one of them in registers. Sums of x go with them.
  static constexpr int kSetsKept = kRows <= 2 ? 2 : 1;

  // A byte of two 4-bit codes, first + 16 * second, is multiplied as it is, and its low nibble apart:
  //   16 * (first * x1 + second * x2) = 16 * first * (x1 - x2 / 16) + (first + 16 * second) * x2
  // so integers are those of x1 - x2 / 16 and x2, and sums are 16 times what they stand for. Groups of 16,
  // which are half a k, take the nibbles apart.
  static constexpr bool kWholeBytes = kLayout.bits == 4 && kLayout.group_size >= 32;
  // Whether low nibbles are multiplied for themselves, two pieces at a time, rather than shifted.
  static constexpr bool kNibblesApart = kWholeBytes && kLayout.group_size >= 64;
  static constexpr float kTimes = kWholeBytes ? 16.0F : 1.0F;
  // The largest integer of x2: x1 - x2 / 16 may be 17/16 of it. Sums of a group stay below 2^31.
  static constexpr float kLimit = kWholeBytes ? 30592.0F : 32512.0F;

  // Of a warp's shared memory.
  // Of a set: x as it was loaded, then its fragments. 8 rows have these in registers only.
  static constexpr int kSetBytes = kTurnSteps * 512;
  static constexpr int kSumsOfXBytes = kSetGroups * kRows * 4;                           // of a set
  // A warp's stores of sums meet no bank twice.
  static constexpr int kTilePitch = kRecordOutputs + (kRows == 8 ? 4 : 8);
  static constexpr int kTileBytes = kRows * kTilePitch * 4;
  static constexpr int kTilesAt = kSetsKept * kSetBytes;  // two take turns
  static constexpr int kSumsOfXAt = kTilesAt + 2 * kTileBytes;
  static constexpr int kUnitsAt = kSumsOfXAt + kSetsKept * kSumsOfXBytes;
  static constexpr int kRingAt = (kUnitsAt + kSetsKept * kRows * 4 + 15) / 16 * 16;
  // A stage is two records, codes before numbers.
  static constexpr int kStageBytes = 2 * kRecordBytes;
  static constexpr int kNumberChunks = kLayout.scale_bytes() / 16;
  static constexpr int kDepth = (kSkinnyCodesWarpBytes - kRingAt) / kStageBytes;
  static_assert(kDepth >= 3 && kNumberChunks <= 16 && kSkinnyCodesWarpBytes % 16 == 0);
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// The records of a warp's slices, tile after tile, as they come through its ring, two at a time.
template <typename Shape>
class RecordRing {
 public:
  // Requests what the ring holds. More tiles than blocks: the blocks are a multiple of kPanelRecords.
  __device__ __forceinline__ RecordRing(const QuantizedProduct& product, const unsigned char* ring,
                                        int num_tiles, int warp, int lane)
      : lane_(lane), slot_(static_cast<uint32_t>(__cvta_generic_to_shared(ring) + lane * 16)) {
    const int num_slices = product.num_slices;
    if (warp < num_slices) tile_records_ = (num_slices - warp + kSkinnyCodesWarps - 1) / kSkinnyCodesWarps;
    const auto tile = static_cast<int>(blockIdx.x);
    const auto tile_step = static_cast<int>(gridDim.x);
    const int tile_stages = (tile_records_ + 1) / 2;
    stages_ = (num_tiles - tile + tile_step - 1) / tile_step * tile_stages;
    records_ = tile_records_;
    const int64_t place = (static_cast<int64_t>(tile / kPanelRecords) * num_slices + warp) * kPanelRecords +
                          tile % kPanelRecords;
    next_ = static_cast<const unsigned char*>(product.records) + place * Shape::kRecordBytes + lane * 16;
    to_next_tile_ = tile_step * num_slices - (tile_stages - 1) * 2 * Shape::kStride;
    const bool is_first = lane < Shape::kNumberChunks;
    to_numbers_ = kLayout.code_bytes() + (is_first ? 0 : Shape::kStrideBytes - Shape::kNumberChunks * 16);
    end_ = slot_ + Shape::kDepth * Shape::kStageBytes;
#pragma unroll 1
    for (int i = 0; i < Shape::kDepth - 1; ++i) {
      Request(slot_);
      slot_ += Shape::kStageBytes;
    }
  }

  // Of a tile, for the warp.
  __device__ __forceinline__ int tile_records() const { return tile_records_; }
  // The next two records, once they have come: the address of the lane's codes in the first. What was taken
  // before has been read, and others take its place.
  __device__ __forceinline__ uint32_t Take() {
    WaitForCopies<Shape::kDepth - 2>();
    __syncwarp();
    Request(slot_);
    slot_ += Shape::kStageBytes;
    if (slot_ == end_) slot_ -= Shape::kDepth * Shape::kStageBytes;
    return slot_;
  }

 private:
  static constexpr CodeLayout kLayout = Shape::kLayout;

  __device__ __forceinline__ void Request(uint32_t slot) {
    if (stages_ > 0) {
      const bool has_second = records_ > 1;
#pragma unroll
      for (int i = 0; i < 2 * Shape::kWords; ++i) {
        const bool is_second = i >= Shape::kWords;
        CopyAsync(slot + static_cast<uint32_t>(i * 512),
                  next_ + (is_second ? Shape::kStrideBytes + (i - Shape::kWords) * 512 : i * 512),
                  !is_second || has_second, policy_);
      }
      if (lane_ < (has_second ? 2 : 1) * Shape::kNumberChunks) {
        CopyAsync(slot + static_cast<uint32_t>(2 * kLayout.code_bytes()), next_ + to_numbers_, true, policy_);
      }
      --stages_;
      const bool is_last = records_ <= 2;
      records_ = is_last ? tile_records_ : records_ - 2;
      next_ += static_cast<int64_t>(is_last ? to_next_tile_ : 2 * Shape::kStride) * Shape::kRecordBytes;
    }
    CommitCopies();
  }

  int lane_;
  int tile_records_ = 0;
  uint32_t slot_;  // that was taken last
  uint32_t end_ = 0;
  uint64_t policy_ = StreamingPolicy();
  // To be requested: in all, of the tile, and from where.
  int stages_ = 0;
  int records_ = 0;
  const unsigned char* next_ = nullptr;
  int to_numbers_ = 0;  // from the lane's codes to the numbers that it requests
  int to_next_tile_ = 0;  // from the tile's last two, in records
};

// A warp's part of x: 512 elements of each row as fragments of the tensor core's second operand.
template <typename T, typename Shape>
class SetOfX {
 public:
  __device__ __forceinline__ SetOfX(const QuantizedProduct& product, unsigned char* warp_bytes, int warp,
                                    int lane)
      : bytes_(warp_bytes), warp_(warp), lane_(lane), in_features_(product.in_features) {
    const int row = Row();
    if (row >= product.rows) in_features_ = 0;
    row_ = static_cast<const T*>(product.x) + row * product.x_stride;
  }

  // Begins to read a set.
  __device__ __forceinline__ void Load(int set) {
    constexpr CodeLayout kLayout = Shape::kLayout;
#pragma unroll
    for (int step = 0; step < Shape::kSetSteps; ++step) {
      const int piece = PieceOf(step);
      const int slice = warp_ + (set * Shape::kSetSlices + piece / Shape::kPieces) * kSkinnyCodesWarps;
      const int k = slice * kLayout.slice_size() + piece % Shape::kPieces * 32 + lane_ % 4 * 8;
      loaded_[step] = make_uint4(0, 0, 0, 0);
      // in_features is a multiple of 16.
      if (k < in_features_) loaded_[step] = *reinterpret_cast<const uint4*>(row_ + k);
    }
  }

  // Makes integers of what has been loaded, and fragments of these, in the place of a kept set. Their units
  // and sums of groups are there for all lanes afterwards.
  __device__ __forceinline__ void Convert(int place) {
    uint32_t largest = 0;
#pragma unroll
    for (const uint4& eight : loaded_) {
      largest = LargerMagnitudes<T>(largest, eight.x);
      largest = LargerMagnitudes<T>(largest, eight.y);
      largest = LargerMagnitudes<T>(largest, eight.z);
      largest = LargerMagnitudes<T>(largest, eight.w);
    }
#pragma unroll
    for (int mask = 16 / Shape::kRows; mask > 0; mask /= 2) {
      largest = LargerMagnitudes<T>(largest, __shfl_xor_sync(0xffffffffU, largest, mask));
    }
    const IntegerScale scale = MakeIntegerScale<T>(largest, Shape::kLimit);
    __syncwarp();  // units and fragments of the set before have been read
    if (lane_ % (32 / Shape::kRows) == 0) {
      Units(place)[Row()] = scale.unit * (1.0F / Shape::kTimes);
    }
    // From 8 in sequence a lane to the pairs that the tensor core's lanes hold.
    unsigned char* turn = SetBytes(place);
    unsigned char* stored = turn + lane_ / 4 * 64 + (lane_ % 4 ^ lane_ / 8) * 16;
    const auto wanted = static_cast<uint32_t>(__cvta_generic_to_shared(turn)) +
                        static_cast<uint32_t>(lane_ % 8 * 64 + (lane_ / 8 ^ lane_ % 8 / 2) * 16);
#pragma unroll
    for (int first = 0; first < Shape::kSetSteps; first += Shape::kTurnSteps) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < Shape::kTurnSteps; ++i) {
        *reinterpret_cast<uint4*>(stored + i * 512) = loaded_[first + i];
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < Shape::kTurnSteps; ++i) {
        loaded_[first + i] = LoadMatrices(wanted + static_cast<uint32_t>(i * 512));
      }
      if constexpr (Shape::kRows < 8) __syncwarp();  // fragments take its place
#pragma unroll
      for (int step = first; step < first + Shape::kTurnSteps; step += 2) {
        BytesOf4 even[2];
        BytesOf4 odd[2];
        MakeIntegers(even, loaded_[step], scale.inverse);
        MakeIntegers(odd, loaded_[step + 1], scale.inverse);
        const uint4 high = InOrder(even[0].high, even[1].high, odd[0].high, odd[1].high);
        const uint4 low = InOrder(even[0].low, even[1].low, odd[0].low, odd[1].low);
        if constexpr (Shape::kRows == 8) {
          Set(0, step, high);
          Set(1, step, low);
        } else {
          unsigned char* to = Fragments(place, PieceOf(step), Row() * 2);
          *reinterpret_cast<uint4*>(to) = high;
          *reinterpret_cast<uint4*>(to + 64) = low;
        }
      }
    }
    __syncwarp();
    Take(place);
    SumUp(place);
    __syncwarp();
  }

  // Fragments of a kept set.
  __device__ __forceinline__ void Take(int place) {
    if constexpr (Shape::kRows < 8) {
#pragma unroll
      for (int piece = 0; piece < Shape::kSetPieces; piece += 2) {
        Set(0, piece,
            *reinterpret_cast<const uint4*>(Fragments(place, piece, lane_ / 4 % (2 * Shape::kRows))));
      }
    }
  }

  // Of the current set. product: high bytes, or both in turn; low bytes. kNibblesApart: of an even piece what
  // meets the low nibbles of two, of an odd one what meets their bytes.
  __device__ __forceinline__ uint2 fragments(int product, int piece) const {
    return fragments_[product][piece];
  }
  // Sums of the integers of groups, times kTimes: as floats where they are to be multiplied by minimums, else
  // as integers times less the zero code. [group][row]
  __device__ __forceinline__ uint32_t* SumsOf(int place) const {
    return reinterpret_cast<uint32_t*>(bytes_ + Shape::kSumsOfXAt + place * Shape::kSumsOfXBytes);
  }
  // What sums of products are multiplied by. [row]
  __device__ __forceinline__ float* Units(int place) const {
    return reinterpret_cast<float*>(bytes_ + Shape::kUnitsAt) + place * Shape::kRows;
  }

 private:
  // That the lane loads and converts: its row, and of a set's steps the piece.
  __device__ __forceinline__ int Row() const { return lane_ / 4 / Shape::kPiecesOfStep; }
  __device__ __forceinline__ int PieceOf(int step) const {
    return (step / 2 * Shape::kPiecesOfStep + lane_ / 4 % Shape::kPiecesOfStep) * 2 + step % 2;
  }
  __device__ __forceinline__ unsigned char* SetBytes(int place) const {
    return bytes_ + place * Shape::kSetBytes;
  }
  // Of two pieces.
  __device__ __forceinline__ static uint4 InOrder(uint32_t even0, uint32_t even1, uint32_t odd0,
                                                  uint32_t odd1) {
    return Shape::kNibblesApart ? make_uint4(even0, odd0, even1, odd1) : make_uint4(even0, even1, odd0, odd1);
  }
  __device__ __forceinline__ void Set(int product, int piece, const uint4& two) {
    fragments_[product][piece] = make_uint2(two.x, two.y);
    fragments_[product][piece + 1] = make_uint2(two.z, two.w);
  }
  // [piece / 2][column]{four lanes of 16 bytes: two pieces}
  __device__ __forceinline__ unsigned char* Fragments(int place, int piece, int column) const {
    return SetBytes(place) + (piece / 2 * 2 * Shape::kRows + column) * 64 + lane_ % 4 * 16;
  }

  // pairs: of two steps of 16 elements 2q and 2q + 1, 2q + 8 and 2q + 9. bytes: what meets the first and the
  // second word of a piece's codes.
  __device__ __forceinline__ static void MakeIntegers(BytesOf4 (&bytes)[2], const uint4& pairs,
                                                      float inverse) {
    float2 values[4] = {ValuesOfPair<T>(pairs.x), ValuesOfPair<T>(pairs.y), ValuesOfPair<T>(pairs.z),
                        ValuesOfPair<T>(pairs.w)};
    if constexpr (Shape::kWholeBytes) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        values[i].x = fmaf(values[i + 1].x, -1.0F / 16, values[i].x);
        values[i].y = fmaf(values[i + 1].y, -1.0F / 16, values[i].y);
      }
    }
#pragma unroll
    for (float2& value : values) {
      value.x = fmaf(value.x, inverse, kIntegerBase);
      value.y = fmaf(value.y, inverse, kIntegerBase);
    }
    constexpr int kSecond = Shape::kWholeBytes ? 2 : 1;
    constexpr int kThird = 3 - kSecond;
    bytes[0] = SplitIntegers(values[0].x, values[0].y, values[kSecond].x, values[kSecond].y);
    bytes[1] = SplitIntegers(values[kThird].x, values[kThird].y, values[3].x, values[3].y);
  }

  __device__ __forceinline__ void SumUp(int place) {
    constexpr CodeLayout kLayout = Shape::kLayout;
    // What a code of 1 for all would be.
    constexpr uint32_t kOfFirst = Shape::kWholeBytes ? 0x10101010U : 0x01010101U;
    constexpr uint32_t kOfSecond = Shape::kWholeBytes ? 0x11111111U : 0x01010101U;
#pragma unroll
    for (int group = 0; group < Shape::kSetGroups; ++group) {
      int32_t sums[Shape::kProducts][4] = {};
#pragma unroll
      for (int product = 0; product < Shape::kProducts; ++product) {
        if constexpr (kLayout.group_size == 16) {
          const uint2 two = fragments_[product][group / 2];
          MultiplyAddBytes(sums[product], kOfFirst, kOfFirst, group % 2 == 0 ? two.x : two.y);
        } else {
#pragma unroll
          for (int i = 0; i < kLayout.group_size / 32; ++i) {
            const uint2 two = fragments_[product][group * (kLayout.group_size / 32) + i];
            const uint32_t first = Shape::kNibblesApart && i % 2 == 1 ? kOfSecond : kOfFirst;
            const uint32_t second = Shape::kNibblesApart && i % 2 == 0 ? kOfFirst : kOfSecond;
            MultiplyAddBytes(sums[product], first, first, second, second, two.x, two.y);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < Shape::kRowsOfLane; ++i) {
        const int32_t sum = sums[0][i] * 256 + (Shape::kRows == 8 ? sums[Shape::kProducts - 1][i] : sums[0][1]);
        const int row = lane_ % 4 * Shape::kRowsOfLane + i;
        if (lane_ >= 4 || row >= Shape::kRows) continue;
        SumsOf(place)[group * Shape::kRows + row] =
            kLayout.has_minimum ? __float_as_uint(static_cast<float>(sum))
                                : static_cast<uint32_t>(-kLayout.zero_code() * sum);
      }
    }
  }

  unsigned char* bytes_;
  const T* row_ = nullptr;
  int warp_;
  int lane_;
  int in_features_;
  uint4 loaded_[Shape::kSetSteps];
  uint2 fragments_[Shape::kProducts][Shape::kSetPieces];
};

// The codes of a record, and fragments of them.
template <typename Shape>
class RecordCodes {
 public:
  // The address of the lane's.
  __device__ __forceinline__ explicit RecordCodes(uint32_t from) {
#pragma unroll
    for (int i = 0; i < Shape::kWords; ++i) {
      const uint4 four = LoadShared(from + static_cast<uint32_t>(i * 512));
      words_[i * 4] = four.x;
      words_[i * 4 + 1] = four.y;
      words_[i * 4 + 2] = four.z;
      words_[i * 4 + 3] = four.w;
    }
  }

  // sums += codes of a group by x, times kTimes. group: of the slice; x of a piece: fragments of the slice.
  template <typename Fragments>
  __device__ __forceinline__ void AddGroup(int32_t (&sums)[Shape::kProducts][4], int group,
                                           const Fragments& x) const {
    constexpr CodeLayout kLayout = Shape::kLayout;
    if constexpr (kLayout.group_size == 16) {
      uint32_t upper = 0;
      const uint32_t lower = OfStep(group, &upper);
#pragma unroll
      for (int product = 0; product < Shape::kProducts; ++product) {
        const uint2 two = x(product, group / 2);
        MultiplyAddBytes(sums[product], lower, upper, group % 2 == 0 ? two.x : two.y);
      }
    } else if constexpr (kLayout.bits == 8) {
#pragma unroll
      for (int i = 0; i < kLayout.group_size / 32; ++i) {
        const int piece = group * (kLayout.group_size / 32) + i;
        uint32_t a[4];
        a[0] = OfStep(piece * 2, &a[1]);
        a[2] = OfStep(piece * 2 + 1, &a[3]);
        Add(sums, a, [&](int product) { return x(product, piece); });
      }
    } else if constexpr (!Shape::kNibblesApart) {
      const uint32_t lower = __byte_perm(words_[group * 2], words_[group * 2 + 1], 0x6420);
      const uint32_t upper = __byte_perm(words_[group * 2], words_[group * 2 + 1], 0x7531);
      const uint32_t a[4] = {lower << 4 & 0xf0f0f0f0U, upper << 4 & 0xf0f0f0f0U, lower, upper};
      Add(sums, a, [&](int product) { return x(product, group); });
    } else {
      int32_t low[Shape::kProducts][4] = {};
#pragma unroll
      for (int i = 0; i < kLayout.group_size / 64; ++i) {
        const int piece = group * (kLayout.group_size / 32) + i * 2;
        uint32_t a[4];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          a[j * 2] = __byte_perm(words_[(piece + j) * 2], words_[(piece + j) * 2 + 1], 0x6420);
          a[j * 2 + 1] = __byte_perm(words_[(piece + j) * 2], words_[(piece + j) * 2 + 1], 0x7531);
        }
        const uint32_t nibbles[4] = {a[0] & 0x0f0f0f0fU, a[1] & 0x0f0f0f0fU, a[2] & 0x0f0f0f0fU,
                                     a[3] & 0x0f0f0f0fU};
        Add(low, nibbles, [&](int product) { return x(product, piece); });
        Add(sums, a, [&](int product) { return x(product, piece + 1); });
      }
#pragma unroll
      for (int product = 0; product < Shape::kProducts; ++product) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[product][i] += low[product][i] * 16;
      }
    }
  }

 private:
  // Elements 2q, 2q + 1, 2q + 8 and 2q + 9 of a step for outputs octet and (upper) octet + 8.
  __device__ __forceinline__ uint32_t OfStep(int step, uint32_t* upper) const {
    uint32_t first;
    uint32_t second;
    if constexpr (Shape::kLayout.bits == 8) {
      first = words_[step * 2];
      second = words_[step * 2 + 1];
    } else {
      first = words_[step] & 0x0f0f0f0fU;
      second = words_[step] >> 4 & 0x0f0f0f0fU;
    }
    *upper = __byte_perm(first, second, 0x7531);
    return __byte_perm(first, second, 0x6420);
  }
  template <typename Fragments>
  __device__ __forceinline__ static void Add(int32_t (&sums)[Shape::kProducts][4], const uint32_t (&a)[4],
                                             const Fragments& x) {
#pragma unroll
    for (int product = 0; product < Shape::kProducts; ++product) {
      const uint2 b = x(product);
      MultiplyAddBytes(sums[product], a[0], a[1], a[2], a[3], b.x, b.y);
    }
  }

  uint32_t words_[Shape::kWords * 4];
};

// sums += a record's product, in units of x. codes, numbers: addresses of the lane's. x: fragments of the slice.
// sums_of_x: of its groups, those of the lane's first row.
template <typename Shape, typename Fragments>
__device__ __forceinline__ void AddRecord(float (&sums)[Shape::kSums], uint32_t codes, uint32_t numbers,
                                          const Fragments& x, const uint32_t* sums_of_x) {
  constexpr CodeLayout kLayout = Shape::kLayout;
  const RecordCodes<Shape> record(codes);
#pragma unroll
  for (int group = 0; group < Shape::kGroups; ++group) {
    int32_t products[Shape::kProducts][4] = {};
    record.AddGroup(products, group, x);
    uint2 pairs = {};
    if constexpr (kLayout.has_minimum) {
      pairs = LoadShared8(numbers + static_cast<uint32_t>(group * 8));
    } else {
      pairs.x = LoadShared4(numbers + static_cast<uint32_t>(group * 4));
    }
    const float2 scales = ValuesOfPair<__half>(pairs.x);
    const float2 minimums = ValuesOfPair<__half>(pairs.y);
#pragma unroll
    for (int row = 0; row < Shape::kRowsOfLane; ++row) {
      const uint32_t of_x = sums_of_x[group * Shape::kRows + row];
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        float& sum = sums[upper * Shape::kRowsOfLane + row];
        int32_t whole = Shape::kRows == 8
                            ? products[0][upper * 2 + row] * 256 + products[Shape::kProducts - 1][upper * 2 + row]
                            : products[0][upper * 2] * 256 + products[0][upper * 2 + 1];
        if constexpr (!kLayout.has_minimum) whole += static_cast<int32_t>(of_x);
        sum = fmaf(upper == 0 ? scales.x : scales.y, static_cast<float>(whole), sum);
        if constexpr (kLayout.has_minimum) {
          sum = fmaf(upper == 0 ? minimums.x : minimums.y, __uint_as_float(of_x), sum);
        }
      }
    }
  }
}

// y of a tile, of the sums that the warps have left: [warp][row][pitch], a warp's kSkinnyCodesWarpBytes apart.
template <typename T, typename Shape>
__device__ __forceinline__ void FinishTile(const QuantizedProduct& product, const unsigned char* sums,
                                           int tile) {
  const auto result = [&](int row, int column) {
    const int output = tile * kRecordOutputs + column;
    const unsigned char* from = sums + (row * Shape::kTilePitch + column) * 4;
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < kSkinnyCodesWarps; ++w) {
      sum += *reinterpret_cast<const float*>(from + w * kSkinnyCodesWarpBytes);
    }
    return fmaf(sum, product.factors[output], product.bias == nullptr ? 0.0F : product.bias[output]);
  };
  const auto thread = static_cast<int>(threadIdx.x);
  if (product.is_gate_up) {
    // The first 8 outputs are gates, the others the ups that belong to them.
    static_assert(kGateUpBlock == 8 && kRecordOutputs == 16);
    const int row = thread / 8;
    const int column = thread % 8;
    if (row < product.rows && tile * kRecordOutputs < product.out_features) {
      StoreRounded(static_cast<T*>(product.y) + row * product.y_stride + tile * 8 + column,
                   SiluMulOne(result(row, column), result(row, column + 8)));
    }
    return;
  }
  const int row = thread / kRecordOutputs;
  const int output = tile * kRecordOutputs + thread % kRecordOutputs;
  if (row >= product.rows || output >= product.out_features) return;
  const float value = result(row, thread % kRecordOutputs);
  const int64_t at = row * product.y_stride + output;
  if (product.y_is_f32) {
    static_cast<float*>(product.y)[at] = value;
  } else {
    StoreRounded(static_cast<T*>(product.y) + at, value);
  }
}

#endif

template <typename T, typename Format, int kMostRows>
__global__ void __launch_bounds__(kSkinnyCodesThreads, kSkinnyCodesBlocksPerSm)
    SkinnyCodesKernel(const QuantizedProduct product) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Shape = SkinnyCodesShape<Format, kMostRows>;
  extern __shared__ __align__(128) unsigned char shared[];

  AllowSuccessors();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int num_tiles = (product.out_features + kRecordOutputs - 1) / kRecordOutputs;
  unsigned char* own = shared + warp * kSkinnyCodesWarpBytes;
  RecordRing<Shape> ring(product, own + Shape::kRingAt, num_tiles, warp, lane);
  const int num_sets = (ring.tile_records() + Shape::kSetSlices - 1) / Shape::kSetSlices;

  // Everything above is weights; x and y belong to other kernels until here.
  WaitForPredecessors();

  // While a set is multiplied the next one is on its way; more rows have no registers for it.
  constexpr bool kLoadsAhead = Shape::kRows <= 2;
  const bool keeps_sets = num_sets <= Shape::kSetsKept;
  SetOfX<T, Shape> x(product, own, warp, lane);
  if (kLoadsAhead) x.Load(0);
  const int first_row = lane % 4 * Shape::kRowsOfLane % Shape::kRows;
  // From the lane's codes of a stage to its numbers.
  const auto to_numbers = static_cast<uint32_t>(2 * Shape::kLayout.code_bytes() - lane * 16 +
                                                lane / 4 * (Shape::kNumberChunks * 2));
  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < num_tiles; tile += static_cast<int>(gridDim.x)) {
    const bool is_first = tile == static_cast<int>(blockIdx.x);
    float sums[Shape::kSums] = {};
    for (int set = 0; set < num_sets; ++set) {
      const int place = keeps_sets ? set : 0;
      if (is_first || !keeps_sets) {
        if (!kLoadsAhead) x.Load(set);
        x.Convert(place);
        const bool is_last = set + 1 == num_sets;
        if (kLoadsAhead && !(is_last && keeps_sets)) x.Load(is_last ? 0 : set + 1);
      } else if (num_sets > 1) {
        x.Take(place);
      }
      const uint32_t* sums_of_x = x.SumsOf(place) + first_row;
      float of_set[Shape::kSums] = {};
      const int set_records = ring.tile_records() - set * Shape::kSetSlices;
#pragma unroll
      for (int i = 0; i < Shape::kSetSlices; i += 2) {
        if (i >= set_records) break;
        const uint32_t stage = ring.Take();
#pragma unroll
        for (int slice = i; slice < i + 2; ++slice) {
          if (slice > i && slice >= set_records) break;
          const auto fragments = [&](int of_product, int piece) {
            return x.fragments(of_product, slice * Shape::kPieces + piece);
          };
          AddRecord<Shape>(of_set, stage + static_cast<uint32_t>((slice - i) * Shape::kLayout.code_bytes()),
                           stage + to_numbers + static_cast<uint32_t>((slice - i) * Shape::kNumberChunks * 16),
                           fragments, sums_of_x + slice * Shape::kGroups * Shape::kRows);
        }
      }
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) {
        const float unit = x.Units(place)[first_row + i % Shape::kRowsOfLane];
        sums[i] = fmaf(of_set[i], unit, sums[i]);
      }
    }
    // Two tiles' sums take turns: when these have been left, those of two tiles before have been read.
    float* to = reinterpret_cast<float*>(own + Shape::kTilesAt + turn * Shape::kTileBytes) + lane / 4;
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) {
      const int row = lane % 4 * Shape::kRowsOfLane + i % Shape::kRowsOfLane;
      if (row < Shape::kRows) to[row * Shape::kTilePitch + i / Shape::kRowsOfLane * 8] = sums[i];
    }
    __syncthreads();
    FinishTile<T, Shape>(product, shared + Shape::kTilesAt + turn * Shape::kTileBytes, tile);
    turn ^= 1;
  }
  WaitForCopies<0>();
#else
  __trap();
#endif
}

template <typename T, typename Format, int kMostRows>
void LaunchSkinnyCodesKernel(CudaStream& stream, const QuantizedProduct& product) {
  auto* kernel = SkinnyCodesKernel<T, Format, kMostRows>;
  static PerGpu<bool> prepared;
  TANDEM_CHECK(prepared.Of(stream, [kernel] {
    TANDEM_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSkinnyCodesSharedBytes));
    // Room for a block of the next kernel.
    TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared));
    return true;
  }));
  const int num_tiles = (product.out_features + kRecordOutputs - 1) / kRecordOutputs;
  int grid = stream.target().num_sms * kSkinnyCodesBlocksPerSm;
  grid = num_tiles <= grid ? num_tiles : std::max(grid / kPanelRecords, 1) * kPanelRecords;
  LaunchKernel("skinny codes", kernel, dim3(static_cast<unsigned>(grid)), dim3(kSkinnyCodesThreads),
               kSkinnyCodesSharedBytes, stream, product);
}

template <typename T, typename Format>
void LaunchSkinnyCodes(CudaStream& stream, const QuantizedProduct& product) {
  if (product.rows == 1) return LaunchSkinnyCodesKernel<T, Format, 1>(stream, product);
  if (product.rows == 2) return LaunchSkinnyCodesKernel<T, Format, 2>(stream, product);
  if (product.rows <= 4) return LaunchSkinnyCodesKernel<T, Format, 4>(stream, product);
  LaunchSkinnyCodesKernel<T, Format, 8>(stream, product);
}

}  // namespace tandem
