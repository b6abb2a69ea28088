// Quantized rows from host memory into the records of a weight, from any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/quantized_rows.h"
#include "device/device.h"
#include "ops/cuda/linear/quantized/code_layout.h"

namespace tandem {

// Every calling thread has a stream and staging of its own, which are kept for the next call. Any thread.
class CodeUpload {
 public:
  // device: of the cuda backend; outlives this.
  explicit CodeUpload(Device* device) : device_(device) {}

  // Returns when the rows are there. places: [rows.num_rows], the output that a row becomes; rows.format has
  // to's layout.
  void Pack(const QuantizedRows& rows, std::span<const int32_t> places, const CodesView& to);
  // Frees what no call uses; later calls take new memory. Not while a graph is being captured.
  void ReleaseStaging();

 private:
  struct Lane {
    std::unique_ptr<Stream> stream;
    Buffer pinned;
    Buffer device;
  };

  // With room for size_bytes.
  std::unique_ptr<Lane> TakeLane(size_t size_bytes);
  static void PackPiece(Lane& lane, const QuantizedRows& rows, std::span<const int32_t> places, int64_t begin,
                        int64_t count, const CodesView& to);

  Device* device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> free_lanes_;
};

}  // namespace tandem
