#include "ops/cuda/linear/weight_upload.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "device/cuda/cuda_error.h"

namespace tandem {
namespace {

constexpr size_t kHalfBytes = size_t{2} << 20;

bool IsPinned(const void* address) {
  cudaPointerAttributes attributes = {};
  TANDEM_CUDA_CHECK(cudaPointerGetAttributes(&attributes, address));
  return attributes.type != cudaMemoryTypeUnregistered;
}

}  // namespace

template <typename CopyWithLane>
void WeightUpload::WithLane(CopyWithLane&& copy) {
  std::unique_ptr<Lane> lane = TakeLane();
  copy(*lane);
  lane->stream->Synchronize();
  GiveBack(std::move(lane));
}

void WeightUpload::Copy(void* device_dst, const void* src, size_t size_bytes) {
  if (size_bytes == 0) return;
  WithLane([&](Lane& lane) {
    if (lane.staging.data() == nullptr || IsPinned(src)) {
      lane.stream->Copy(device_dst, src, size_bytes);
    } else {
      CopyThroughStaging(lane, static_cast<std::byte*>(device_dst), static_cast<const std::byte*>(src),
                         size_bytes);
    }
  });
}

void WeightUpload::CopyBlocks(void* device_dst, size_t dst_stride_bytes, const void* src, size_t block_bytes,
                              size_t num_blocks) {
  if (num_blocks == 1) return Copy(device_dst, src, block_bytes);
  if (block_bytes == 0 || num_blocks == 0) return;
  auto* to = static_cast<std::byte*>(device_dst);
  const auto* from = static_cast<const std::byte*>(src);
  WithLane([&](Lane& lane) {
    if (lane.staging.data() == nullptr || IsPinned(src)) {
      lane.stream->CopyRows(to, dst_stride_bytes, from, block_bytes, block_bytes, num_blocks);
      return;
    }
    if (block_bytes > kHalfBytes) {
      for (size_t block = 0; block < num_blocks; ++block) {
        CopyThroughStaging(lane, to + block * dst_stride_bytes, from + block * block_bytes, block_bytes);
      }
      return;
    }
    const size_t blocks_a_half = kHalfBytes / block_bytes;
    size_t half = 0;
    for (size_t done = 0; done < num_blocks; done += blocks_a_half) {
      const size_t blocks = std::min(blocks_a_half, num_blocks - done);
      const std::byte* staged = Stage(lane, half, from + done * block_bytes, blocks * block_bytes);
      lane.stream->CopyRows(to + done * dst_stride_bytes, dst_stride_bytes, staged, block_bytes, block_bytes,
                            blocks);
      lane.stream->Record(*lane.half_free[half]);
      half = 1 - half;
    }
  });
}

void WeightUpload::CopyRows(const UploadTarget& to, int64_t row_begin, int64_t num_rows, const void* values) {
  auto* base = static_cast<std::byte*>(to.all);
  const auto* from = static_cast<const std::byte*>(values);
  const size_t value_bytes = to.value_bytes;
  if (to.order == nullptr) {
    Copy(base + static_cast<size_t>(row_begin) * value_bytes, from,
         static_cast<size_t>(num_rows) * value_bytes);
    return;
  }
  const int64_t block = to.order->block();
  const int64_t mlp = to.out_features / 2;
  const int64_t end = row_begin + num_rows;
  for (int64_t row = row_begin; row < end;) {
    // Whole blocks are equally far apart; a part of one comes before and after them, and where up begins.
    const int64_t half_end = std::min(end, row < mlp ? mlp : to.out_features);
    const int64_t in_block = row % mlp % block;
    const int64_t whole_blocks = in_block == 0 ? (half_end - row) / block : 0;
    const int64_t count =
        whole_blocks > 0 ? whole_blocks * block : std::min(block - in_block, half_end - row);
    const int64_t piece_rows = whole_blocks > 0 ? block : count;
    CopyBlocks(base + static_cast<size_t>(to.order->PlaceOf(row)) * value_bytes,
               static_cast<size_t>(2 * block) * value_bytes, from,
               static_cast<size_t>(piece_rows) * value_bytes,
               static_cast<size_t>(std::max<int64_t>(whole_blocks, 1)));
    from += static_cast<size_t>(count) * value_bytes;
    row += count;
  }
}

const std::byte* WeightUpload::Stage(Lane& lane, size_t half, const std::byte* from, size_t size_bytes) {
  std::byte* staged = lane.staging.as<std::byte>() + half * kHalfBytes;
  lane.half_free[half]->Synchronize();
  std::memcpy(staged, from, size_bytes);
  return staged;
}

void WeightUpload::CopyThroughStaging(Lane& lane, std::byte* to, const std::byte* from, size_t size_bytes) {
  size_t half = 0;
  for (size_t done = 0; done < size_bytes; done += kHalfBytes) {
    const size_t bytes = std::min(kHalfBytes, size_bytes - done);
    lane.stream->Copy(to + done, Stage(lane, half, from + done, bytes), bytes);
    lane.stream->Record(*lane.half_free[half]);
    half = 1 - half;
  }
}

void WeightUpload::ReleaseStaging() {
  const std::lock_guard lock(mutex_);
  free_lanes_.clear();
}

std::unique_ptr<WeightUpload::Lane> WeightUpload::TakeLane() {
  const std::lock_guard lock(mutex_);
  if (!free_lanes_.empty()) {
    std::unique_ptr<Lane> lane = std::move(free_lanes_.back());
    free_lanes_.pop_back();
    return lane;
  }
  auto lane = std::make_unique<Lane>();
  lane->stream = device_->CreateStream(StreamKind::kCopy, "weights");
  for (std::unique_ptr<Event>& event : lane->half_free) event = device_->CreateEvent();
  auto staging = device_->Allocate(2 * kHalfBytes, MemoryKind::kPinned, "staging of weights");
  if (staging.ok()) {
    lane->staging = std::move(staging).value();
  } else {
    LogWarn("weights are copied without staging, which is slower: {}", staging.error().message);
  }
  return lane;
}

void WeightUpload::GiveBack(std::unique_ptr<Lane> lane) {
  const std::lock_guard lock(mutex_);
  free_lanes_.push_back(std::move(lane));
}

}  // namespace tandem
