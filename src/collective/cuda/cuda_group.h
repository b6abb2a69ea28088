// Exchange between shards on the cuda backend: of one process, on slices of one GPU or a GPU each, or in
// processes of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "collective/collective.h"
#include "collective/processes.h"
#include "device/device.h"

namespace tandem {

struct CudaGroupOptions {
  // For which a shard waits for another one.
  std::chrono::milliseconds timeout{10'000};
  // Whether NCCL takes the sums for which it is the faster one, where GPUs are several.
  bool use_nccl = true;
  // Sums of so many bytes and more go through NCCL; absent: those of several rounds of the own kernel, and
  // smaller ones from where it was the faster one in a short measurement, which takes some ten milliseconds.
  std::optional<int64_t> nccl_from_bytes;
  // Of shards in processes of their own: whether they may be on one GPU, on which they take turns.
  bool may_share_gpu = false;
};

// devices: of the cuda backend, by rank, either all on one GPU or each on one of its own; they outlive the
// group, which outlives what was enqueued. Errors: kResourceExhausted; kUnsupported with param
// "tensor-parallel-size" for more shards than exchange can have.
//
// Of the interface's calls AllReduce takes fp32, bf16 and fp16. All but large sums in bf16 or fp16 on several
// GPUs give the same bits in every run. A call blocks until all ranks have made it, so each has a thread of
// its own; only in a capture it does not. Where GPUs do not reach each other's memory, exchange goes through
// pinned memory.
Result<std::unique_ptr<CollectiveGroup>> CreateCudaGroup(std::span<Device* const> devices,
                                                         const CudaGroupOptions& options);

// The same for shards in processes of their own, all on one host: device is this one's, and of the group
// there is the end of its rank. All processes call it at the same step; if one has an error all have. Calls
// do not wait for other ranks on the host: each process has a driver's state of its own, so what a rank does
// there waits for no other rank's GPU. A failure of the processes ends the exchange, and one of the exchange
// is theirs. Errors: as above; kUnsupported with param "tensor-parallel-size" where GPUs do not reach each
// other's memory or processes are on several hosts; kUnavailable after a failure of the processes.
Result<std::unique_ptr<CollectiveGroup>> CreateCudaGroup(Device* device, Processes* processes,
                                                         const CudaGroupOptions& options);

}  // namespace tandem
