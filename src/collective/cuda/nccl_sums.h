// Sums over GPUs of one process through NCCL.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/matrix_view.h"
#include "collective/cuda/nccl_api.h"
#include "device/cuda/cuda_stream.h"
#include "device/device.h"

namespace tandem {

// The communicators of a group, by rank. Any thread.
class NcclSums {
 public:
  // Null, with a word in the log, where NCCL is not there or cannot be used. devices: by rank, a GPU each;
  // outlive it.
  static std::unique_ptr<NcclSums> Create(std::span<Device* const> devices);
  ~NcclSums() { Abort(); }
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;

  // values: dense, in memory of the rank's GPU; replaced by their sum. A thread a rank enqueues.
  void AllReduce(int rank, CudaStream& stream, const MatrixView& values);
  // What has failed, once it is known.
  std::optional<std::string> Error();
  // What waits on the GPUs ends, and further sums do nothing.
  void Abort();

 private:
  NcclSums(const NcclApi& api, std::span<Device* const> devices);

  NcclApi api_;
  std::vector<NcclApi::Communicator> communicators_;
  std::vector<std::unique_ptr<Event>> enqueued_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::optional<std::string> error_;
};

}  // namespace tandem
