#include "collective/cuda/nccl_sums.h"

#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "device/cuda/cuda_device.h"

namespace tandem {

NcclSums::NcclSums(const NcclApi& api, std::span<Device* const> devices, int first_rank)
    : api_(api), first_rank_(first_rank), communicators_(devices.size(), nullptr) {
  for (Device* device : devices) enqueued_.push_back(device->CreateEvent());
}

std::unique_ptr<NcclSums> NcclSums::Create(const NcclApi& api, const NcclApi::Id& id,
                                           std::span<Device* const> devices, Shard first) {
  auto sums = std::unique_ptr<NcclSums>(new NcclSums(api, devices, first.rank));
  int result = api.group_start();
  for (size_t i = 0; result == 0 && i < devices.size(); ++i) {
    UseCudaGpu(*devices[i]);
    result = api.comm_init_rank(&sums->communicators_[i], first.size, id, first.rank + static_cast<int>(i));
  }
  const int ended = api.group_end();
  if (result == 0) result = ended;
  UseCudaGpu(*devices.front());
  if (result != 0) {
    LogWarn("NCCL cannot be used ({}): sums of many rows over {} GPUs go through an own kernel",
            api.error_text(result), first.size);
    sums->communicators_.assign(devices.size(), nullptr);
    return nullptr;
  }
  constexpr int kMajor = 10'000;
  constexpr int kMinor = 100;
  LogInfo("NCCL {}.{} is there", api.version / kMajor, api.version % kMajor / kMinor);
  return sums;
}

void NcclSums::AllReduce(int rank, CudaStream& stream, const MatrixView& values) {
  if (aborted_.load(std::memory_order_relaxed)) return;
  const auto index = static_cast<size_t>(rank - first_rank_);
  const cudaStream_t handle = stream.handle();
  const int result = api_.all_reduce(values.data, values.data, static_cast<size_t>(values.rows * values.cols),
                                     NcclTypeOf(values.dtype), kNcclSum, communicators_[index], handle);
  // In a graph more than a kernel may come before the next one.
  stream.Record(*enqueued_[index]);
  stream.Wait(*enqueued_[index]);
  if (result == 0) return;
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = fmt::format("shard {}: NCCL: {}", rank, api_.error_text(result));
}

std::optional<std::string> NcclSums::Error() {
  const std::lock_guard lock(mutex_);
  if (error_ || aborted_.load()) return error_;
  for (size_t i = 0; i < communicators_.size(); ++i) {
    int state = 0;
    constexpr int kInProgress = 7;
    const int result = api_.comm_get_async_error(communicators_[i], &state);
    if (result == 0) {
      if (state == 0 || state == kInProgress) continue;
      error_ = fmt::format("shard {}: NCCL: {}", first_rank_ + static_cast<int>(i), api_.error_text(state));
      break;
    }
  }
  return error_;
}

void NcclSums::Abort() {
  if (aborted_.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  // Each may wait for the others.
  std::vector<std::thread> threads;
  for (NcclApi::Communicator& communicator : communicators_) {
    if (communicator != nullptr)
      threads.emplace_back([this, communicator] { api_.comm_abort(communicator); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem
