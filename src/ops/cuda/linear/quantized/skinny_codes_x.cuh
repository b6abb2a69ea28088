// How a warp of skinny_codes.cuh gets its part of x. For .cu files; compute capability 8.0.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/integer_rows.cuh"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/linear/tensor_core.cuh"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// A warp's part of x: 512 elements of each row as fragments of the tensor core's second operand.
template <typename T, typename Shape>
class SetOfX {
 public:
  __device__ __forceinline__ SetOfX(const QuantizedProduct& product, unsigned char* warp_bytes, int warp,
                                    int lane)
      : bytes_(warp_bytes), warp_(warp), lane_(lane), in_features_(product.in_features) {
    const int row = min(Row(), product.rows - 1);
    row_ = static_cast<const T*>(product.x) + row * product.x_stride;
  }

  // Begins to read a set. Behind the last element, and the last row, it is that again: what it is multiplied
  // by has scales of 0, or belongs to no row of y.
  __device__ __forceinline__ void Load(int set) {
    constexpr int kSliceSize = Shape::kLayout.slice_size();
    const int first = (warp_ + set * Shape::kSetSlices * kSkinnyCodesWarps) * kSliceSize + lane_ % 4 * 8;
    const auto load = [&](int step, int most) {
      const int piece = PieceOf(step);
      const int k =
          first + piece / Shape::kPieces * kSkinnyCodesWarps * kSliceSize + piece % Shape::kPieces * 32;
      return *reinterpret_cast<const uint4*>(row_ + min(k, most));
    };
    const int end = (warp_ + ((set + 1) * Shape::kSetSlices - 1) * kSkinnyCodesWarps + 1) * kSliceSize;
    if (end <= in_features_) {
#pragma unroll
      for (int step = 0; step < Shape::kSetSteps; ++step) {
        loaded_[step] = load(step, std::numeric_limits<int>::max());
      }
    } else {
#pragma unroll
      for (int step = 0; step < Shape::kSetSteps; ++step) loaded_[step] = load(step, in_features_ - 8);
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
        Set(0, piece, *reinterpret_cast<const uint4*>(Fragments(place, piece, Column())));
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
  __device__ __forceinline__ int Row() const {
    return lane_ / 4 / Shape::kPiecesOfStep;
  }
  __device__ __forceinline__ int PieceOf(int step) const {
    return (step / 2 * Shape::kPiecesOfStep + lane_ / 4 % Shape::kPiecesOfStep) * 2 + step % 2;
  }
  __device__ __forceinline__ unsigned char* SetBytes(int place) const {
    return bytes_ + place * Shape::kSetBytes;
  }
  __device__ __forceinline__ int Column() const {
    return lane_ / 4 % (2 * Shape::kRows);
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
    if constexpr (Shape::kRows == 8) {
#pragma unroll
      for (int pieces = 0; pieces < Shape::kSetPieces; pieces += kPiecesAtOnce) {
        SumUpPieces(place, pieces,
                    [&](int product, int piece) { return fragments_[product][pieces + piece]; });
      }
    } else {
      // From shared memory, as a loop: registers hold no more products at once.
#pragma unroll 1
      for (int pieces = 0; pieces < Shape::kSetPieces; pieces += kPiecesAtOnce) {
        const unsigned char* from = Fragments(place, pieces, Column());
        SumUpPieces(place, pieces, [&](int, int piece) {
          return *reinterpret_cast<const uint2*>(from + piece / 2 * 128 * Shape::kRows + piece % 2 * 8);
        });
      }
    }
  }
  static constexpr int kPiecesAtOnce = 4;
  template <typename Pieces>
  __device__ __forceinline__ void SumUpPieces(int place, int first_piece, const Pieces& pieces) {
    constexpr CodeLayout kLayout = Shape::kLayout;
    // What a code of 1 for all would be.
    constexpr uint32_t kOfFirst = Shape::kWholeBytes ? 0x10101010U : 0x01010101U;
    constexpr uint32_t kOfSecond = Shape::kWholeBytes ? 0x11111111U : 0x01010101U;
    constexpr int kGroups = kPiecesAtOnce * 32 / kLayout.group_size;
    int32_t sums[kGroups][Shape::kProducts][4] = {};
#pragma unroll
    for (int piece = 0; piece < kPiecesAtOnce; ++piece) {
#pragma unroll
      for (int product = 0; product < Shape::kProducts; ++product) {
        const uint2 two = pieces(product, piece);
        if constexpr (kLayout.group_size == 16) {
          MultiplyAddBytes(sums[piece * 2][product], kOfFirst, kOfFirst, two.x);
          MultiplyAddBytes(sums[piece * 2 + 1][product], kOfSecond, kOfSecond, two.y);
        } else {
          const uint32_t first = Shape::kNibblesApart && piece % 2 == 1 ? kOfSecond : kOfFirst;
          const uint32_t second = Shape::kNibblesApart && piece % 2 == 0 ? kOfFirst : kOfSecond;
          MultiplyAddBytes(sums[piece * 32 / kLayout.group_size][product], first, first, second, second,
                           two.x, two.y);
        }
      }
    }
    const int row = lane_ * Shape::kRowsOfLane;
    if (lane_ >= 4 || row >= Shape::kRows) return;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      uint32_t* to = SumsOf(place) + (first_piece * 32 / kLayout.group_size + group) * Shape::kRows + row;
#pragma unroll
      for (int i = 0; i < Shape::kRowsOfLane; ++i) {
        const int32_t low = Shape::kRows == 8 ? sums[group][Shape::kProducts - 1][i] : sums[group][0][1];
        const int32_t sum = sums[group][0][i] * 256 + low;
        to[i] = kLayout.has_minimum ? __float_as_uint(static_cast<float>(sum))
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

#endif

}  // namespace tandem
