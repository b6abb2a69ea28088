// Exchange between the shards of one process on the cuda backend: slices of one GPU, or a GPU each.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "collective/collective.h"
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

}  // namespace tandem
