// Sums over GPUs through NCCL: of one process, or of several.
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
#include "collective/shard.h"
#include "device/cuda/cuda_stream.h"
#include "device/device.h"

namespace tandem {

// The communicators of the ranks of this process. Any thread.
class NcclSums {
 public:
  // Null, with a word in the log, where NCCL cannot be used. devices: a GPU each, of ranks first.rank and up;
  // outlive it. id: the same on all ranks. Blocks until all ranks have come.
  static std::unique_ptr<NcclSums> Create(const NcclApi& api, const NcclApi::Id& id,
                                          std::span<Device* const> devices, Shard first);
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
  NcclSums(const NcclApi& api, std::span<Device* const> devices, int first_rank);

  NcclApi api_;
  const int first_rank_;
  std::vector<NcclApi::Communicator> communicators_;
  std::vector<std::unique_ptr<Event>> enqueued_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::optional<std::string> error_;
};

}  // namespace tandem
