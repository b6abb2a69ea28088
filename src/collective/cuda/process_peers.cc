#include "collective/cuda/process_peers.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/param_error.h"
#include "base/wire.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"

namespace tandem {

template <typename Archive>
void OverWire(Archive& archive, PeerIntroduction& introduction) {
  auto& [gpu, num_blocks, has_nccl, nccl_id] = introduction;
  archive(gpu, num_blocks, has_nccl, nccl_id);
}

namespace {

// What goes over at once; error: that keeps a rank from taking part.
struct Told {
  std::optional<Error> error;
  PeerIntroduction introduction;
  std::string handle;  // of its memory
};
template <typename Archive>
void OverWire(Archive& archive, Told& told) {
  auto& [error, introduction, handle] = told;
  archive(error, introduction, handle);
}

// Error: the own one, or that of the lowest rank that has one, or of the processes.
Result<std::vector<Told>> TellAll(Processes* processes, Told own) {
  WireWriter writer;
  writer(own);
  const auto messages = ShareWithAll(processes, writer.Take());
  if (own.error) return *own.error;
  if (!messages) return NotHeardOfOthers(processes);
  std::vector<Told> all(messages->size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    WireReader reader((*messages)[rank]);
    reader(all[rank]);
    if (!all[rank].error) continue;
    return ErrorOf({.rank = static_cast<int>(rank), .size = processes->shard().size},
                   std::move(*all[rank].error));
  }
  return all;
}

}  // namespace

Status ShareStatus(Processes* processes, const Status& own) {
  Told told;
  if (!own.ok()) told.error = own.error();
  const auto all = TellAll(processes, std::move(told));
  return all.ok() ? Status() : Status(all.error());
}

Result<std::unique_ptr<ProcessPeers>> ProcessPeers::Meet(Processes* processes, const Device& device,
                                                         const Result<Buffer>& memory, PeerIntroduction own,
                                                         bool may_share_gpu) {
  UseCudaGpu(device);
  Told told = {.introduction = std::move(own)};
  cudaIpcMemHandle_t handle = {};
  if (!memory.ok()) {
    told.error = memory.error();
  } else if (const cudaError_t error = cudaIpcGetMemHandle(&handle, memory->data()); error != cudaSuccess) {
    cudaGetLastError();
    told.error =
        MakeParamError(ErrorCode::kUnsupported, "tensor-parallel-size",
                       "memory of this GPU cannot be shown to other processes: {}", CudaErrorText(error));
  }
  told.handle.assign(handle.reserved, sizeof(handle.reserved));
  TANDEM_ASSIGN_OR_RETURN(std::vector<Told> all, TellAll(processes, std::move(told)));
  auto peers = std::unique_ptr<ProcessPeers>(new ProcessPeers(device));
  std::vector<std::string> handles;
  for (Told& each : all) {
    peers->introductions_.push_back(std::move(each.introduction));
    handles.push_back(std::move(each.handle));
  }
  const Shard shard = processes->shard();
  if (!may_share_gpu) TANDEM_RETURN_IF_ERROR(peers->CheckGpus());
  TANDEM_RETURN_IF_ERROR(
      ShareStatus(processes, peers->Open(handles, shard, static_cast<std::byte*>(memory->data()))));
  return peers;
}

Status ProcessPeers::CheckGpus() const {
  for (size_t rank = 0; rank < introductions_.size(); ++rank) {
    for (size_t other = 0; other < rank; ++other) {
      if (introductions_[rank].gpu != introductions_[other].gpu) continue;
      return MakeParamError(ErrorCode::kUnsupported, "tensor-parallel-size",
                            "shards {} and {} of {} have come to the same GPU: each needs one of its own",
                            other, rank, introductions_.size());
    }
  }
  return {};
}

Status ProcessPeers::Open(const std::vector<std::string>& handles, const Shard& shard, std::byte* own) {
  for (size_t rank = 0; rank < handles.size(); ++rank) {
    if (static_cast<int>(rank) == shard.rank) {
      memories_.push_back(own);
      continue;
    }
    cudaIpcMemHandle_t handle = {};
    TANDEM_CHECK(handles[rank].size() == sizeof(handle.reserved), "a handle of {} bytes",
                 handles[rank].size());
    std::memcpy(handle.reserved, handles[rank].data(), sizeof(handle.reserved));
    void* opened = nullptr;
    if (const cudaError_t error = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess);
        error != cudaSuccess) {
      cudaGetLastError();
      return MakeParamError(ErrorCode::kUnsupported, "tensor-parallel-size",
                            "the GPU of shard {} does not reach the memory of that of shard {}, which shards "
                            "in processes of their own need: {}",
                            shard.rank, rank, CudaErrorText(error));
    }
    opened_.push_back(opened);
    memories_.push_back(static_cast<std::byte*>(opened));
  }
  return {};
}

ProcessPeers::~ProcessPeers() {
  UseCudaGpu(device_);
  for (void* const opened : opened_) {
    // Whose it was may have ended.
    if (cudaIpcCloseMemHandle(opened) != cudaSuccess) cudaGetLastError();
  }
}

}  // namespace tandem
