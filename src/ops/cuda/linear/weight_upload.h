// Copies of checkpoints' rows into GPU memory, from any number of threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "ops/cuda/linear/gate_up_order.h"

namespace tandem {

// What a weight has for each of its rows, in GPU memory.
struct UploadTarget {
  void* all = nullptr;
  size_t value_bytes = 0;  // of a row
  int64_t out_features = 0;
  const GateUpOrder* order = nullptr;  // of a gate-up weight, else null
};

// A copy from pageable memory goes through pinned staging, one half being filled while the other is under
// way; every calling thread has a stream and staging of its own. Any thread.
class WeightUpload {
 public:
  // device: of the cuda backend; outlives this.
  explicit WeightUpload(Device* device) : device_(device) {}

  // Returns when the bytes are there. src: host memory, pinned or not.
  void Copy(void* device_dst, const void* src, size_t size_bytes);
  // num_blocks pieces of block_bytes, dense in src, to addresses dst_stride_bytes apart.
  void CopyBlocks(void* device_dst, size_t dst_stride_bytes, const void* src, size_t block_bytes,
                  size_t num_blocks);
  // What belongs to logical rows [row_begin, row_begin + num_rows), dense in values, to where the target's
  // order has it.
  void CopyRows(const UploadTarget& to, int64_t row_begin, int64_t num_rows, const void* values);
  // Frees what no call uses; later calls take new memory. Not while a graph is being captured.
  void ReleaseStaging();

 private:
  struct Lane {
    std::unique_ptr<Stream> stream;
    Buffer staging;  // empty if there was no memory to pin
    std::array<std::unique_ptr<Event>, 2> half_free;
  };

  std::unique_ptr<Lane> TakeLane();
  void GiveBack(std::unique_ptr<Lane> lane);
  static void CopyThroughStaging(Lane& lane, std::byte* to, const std::byte* from, size_t size_bytes);
  // Brings what fits into a half of the staging there, once it is free.
  static const std::byte* Stage(Lane& lane, size_t half, const std::byte* from, size_t size_bytes);
  // Calls copy(lane) with a stream that no other thread uses, and waits for it.
  template <typename CopyWithLane>
  void WithLane(CopyWithLane&& copy);

  Device* device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> free_lanes_;
};

}  // namespace tandem
