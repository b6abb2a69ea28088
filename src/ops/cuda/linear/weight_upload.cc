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

void WeightUpload::Copy(void* device_dst, const void* src, size_t size_bytes) {
  if (size_bytes == 0) return;
  std::unique_ptr<Lane> lane = TakeLane();
  if (lane->staging.data() == nullptr || IsPinned(src)) {
    lane->stream->Copy(device_dst, src, size_bytes);
  } else {
    CopyThroughStaging(*lane, static_cast<std::byte*>(device_dst), static_cast<const std::byte*>(src),
                       size_bytes);
  }
  lane->stream->Synchronize();
  GiveBack(std::move(lane));
}

void WeightUpload::CopyThroughStaging(Lane& lane, std::byte* to, const std::byte* from, size_t size_bytes) {
  size_t half = 0;
  for (size_t done = 0; done < size_bytes; done += kHalfBytes) {
    const size_t bytes = std::min(kHalfBytes, size_bytes - done);
    std::byte* staged = lane.staging.as<std::byte>() + half * kHalfBytes;
    lane.half_free[half]->Synchronize();
    std::memcpy(staged, from + done, bytes);
    lane.stream->Copy(to + done, staged, bytes);
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
