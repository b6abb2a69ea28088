// Small integer arrays (token ids, positions, slots, row indices) on their way to device memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "device/device.h"
#include "device/staging_pair.h"

namespace tandem {

// Fill with Add, send with one Upload, use the pointers. What is sent is in the order of the stream; Clear
// needs the upload before the last to have run.
class IntInputs {
 public:
  // Errors: kResourceExhausted.
  static Result<IntInputs> Allocate(Device* device, int64_t capacity);

  void Clear() {
    size_ = 0;
    staging_.Next();
  }
  // Copies values; returns where they will lie in device memory once uploaded. CHECKs the capacity.
  int32_t* Add(std::span<const int32_t> values);
  void Upload(Stream& stream) const;

 private:
  StagingPair staging_;
  Buffer device_;
  int64_t size_ = 0;
};

}  // namespace tandem
