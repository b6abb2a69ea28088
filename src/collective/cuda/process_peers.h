// Ranks in processes of their own on one host: what they tell each other of their GPUs, and memory of others
// as this process reaches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/processes.h"
#include "device/device.h"

namespace tandem {

// What a rank says of itself.
struct PeerIntroduction {
  std::string gpu;     // CudaGpuUuid
  int num_blocks = 0;  // of a kernel at most
  bool has_nccl = false;
  std::string nccl_id;  // of rank 0, where it has NCCL: bytes of NcclApi::Id
};

// Own error, else that of the lowest rank that has one, which it names. All ranks call it at the same step.
Status ShareStatus(Processes* processes, const Status& own);

class ProcessPeers {
 public:
  // device, which outlives it, and memory: of this rank, which others will write from now on; memory is an
  // allocation of device memory, cleared, or why there is none. All ranks call it at the same step, and all
  // have an error if one has. Errors: that of memory; kUnsupported with param "tensor-parallel-size" where
  // GPUs do not reach each other's memory, or unless may_share_gpu are not all different.
  static Result<std::unique_ptr<ProcessPeers>> Meet(Processes* processes, const Device& device,
                                                    const Result<Buffer>& memory, PeerIntroduction own,
                                                    bool may_share_gpu);
  // Nothing that was enqueued uses the memory any more.
  ~ProcessPeers();
  ProcessPeers(const ProcessPeers&) = delete;
  ProcessPeers& operator=(const ProcessPeers&) = delete;

  // By rank.
  const std::vector<PeerIntroduction>& introductions() const { return introductions_; }
  const std::vector<std::byte*>& memories() const { return memories_; }

 private:
  explicit ProcessPeers(const Device& device) : device_(device) {}
  // All are different.
  Status CheckGpus() const;
  Status Open(const std::vector<std::string>& handles, const Shard& shard, std::byte* own);

  const Device& device_;
  std::vector<PeerIntroduction> introductions_;
  std::vector<std::byte*> memories_;
  std::vector<void*> opened_;
};

}  // namespace tandem
