// How a warp of skinny_codes.cuh gets its records. For .cu files; compute capability 8.0.
#pragma once

#include <cstdint>

#include "ops/cuda/linear/quantized/code_layout.h"
#include "ops/cuda/linear/quantized/quantized_linear.h"
#include "ops/cuda/shared_memory.cuh"

namespace tandem {

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
  __device__ __forceinline__ int tile_records() const {
    return tile_records_;
  }
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
  int to_numbers_ = 0;    // from the lane's codes to the numbers that it requests
  int to_next_tile_ = 0;  // from the tile's last two, in records
};

#endif

}  // namespace tandem
