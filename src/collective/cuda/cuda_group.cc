#include "collective/cuda/cuda_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/param_error.h"
#include "collective/cuda/meeting.h"
#include "collective/cuda/nccl_sums.h"
#include "collective/cuda/peer_exchange.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {
namespace {

// Riders exchange a word a cohort; through pinned memory more blocks would not be faster.
constexpr int kRiderBlocks = 1;
constexpr int kPinnedBlocks = 16;
// A kernel that waits leaves room for others on the SMs, and more are no faster.
constexpr int kMostBlocks = 132;

// Whether all GPUs can reach each other's memory; enables it.
bool ConnectPeers(std::span<Device* const> devices) {
  std::set<int> gpus;
  for (const Device* device : devices) gpus.insert(CudaGpuOf(*device));
  for (const int gpu : gpus) {
    for (const int peer : gpus) {
      int can = 1;
      if (gpu != peer) TANDEM_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, gpu, peer));
      if (can == 0) return false;
    }
  }
  for (const Device* device : devices) {
    UseCudaGpu(*device);
    for (const int peer : gpus) {
      if (peer == CudaGpuOf(*device)) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
      if (error != cudaSuccess) cudaGetLastError();
      if (error != cudaSuccess && error != cudaErrorPeerAccessAlreadyEnabled) {
        LogWarn("GPU {} cannot reach the memory of GPU {}: {}", CudaGpuOf(*device), peer,
                CudaErrorText(error));
        return false;
      }
    }
  }
  return true;
}

class CudaCollective : public Collective {
 public:
  // nccl: null, or where sums go from nccl_from_bytes on.
  CudaCollective(const PeerEnd& end, Meeting* meeting, NcclSums* nccl)
      : end_(end), meeting_(meeting), nccl_(nccl) {}
  void set_nccl_from_bytes(int64_t size_bytes) { nccl_from_bytes_ = size_bytes; }

  Shard shard() const override { return {.rank = end_.rank, .size = end_.size}; }

  void AllReduce(Stream& stream, const MatrixView& values) override {
    TANDEM_CHECK(values.row_stride == values.cols, "all-reduce: [{}, {}] {} with a row stride of {}",
                 values.rows, values.cols, DTypeName(values.dtype), values.row_stride);
    CudaStream& cuda_stream = Enter(stream);
    const int64_t size_bytes = values.rows * values.cols * static_cast<int64_t>(DTypeSize(values.dtype));
    // At fp32 the order of the sum is to be the same wherever in a batch a row is.
    const bool by_nccl = nccl_ != nullptr && values.dtype != DType::kF32 && size_bytes >= nccl_from_bytes_;
    if (by_nccl) return nccl_->AllReduce(end_.rank, cuda_stream, values);
    LaunchPeerAllReduce(cuda_stream, end_, values);
  }
  void AllGather(Stream& stream, const MatrixView& matrix, int64_t column_begin,
                 int64_t num_columns) override {
    LaunchPeerAllGather(Enter(stream), end_, matrix, column_begin, num_columns);
  }
  void Broadcast(Stream& stream, void* data, size_t size_bytes) override {
    LaunchPeerBroadcast(Enter(stream), end_, data, size_bytes);
  }
  void Min(Stream& stream, std::span<int32_t> values) override {
    LaunchPeerMin(Enter(stream), end_, values.data(), static_cast<int64_t>(values.size()));
  }
  void AwaitReplay() override { meeting_->Await(end_.rank); }

 private:
  // A capture runs nothing.
  CudaStream& Enter(Stream& stream) {
    CudaStream& cuda_stream = AsCudaStream(stream);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    TANDEM_CUDA_CHECK(cudaStreamIsCapturing(cuda_stream.handle(), &capture), "stream {}", stream.name());
    if (capture == cudaStreamCaptureStatusNone) meeting_->Await(end_.rank);
    return cuda_stream;
  }

  const PeerEnd end_;
  Meeting* const meeting_;
  NcclSums* const nccl_;
  int64_t nccl_from_bytes_ = std::numeric_limits<int64_t>::max();
};

class CudaGroup : public CollectiveGroup {
 public:
  CudaGroup(std::span<Device* const> devices, const CudaGroupOptions& options)
      : devices_(devices.begin(), devices.end()), options_(options) {}

  Status Open() {
    TANDEM_CHECK(!devices_.empty(), "no shards");
    if (size() > kMostPeers) {
      return MakeParamError(ErrorCode::kUnsupported, "tensor-parallel-size",
                            "tensor-parallel-size {} is more than the {} shards that exchange on one host",
                            size(), kMostPeers);
    }
    peers_ = ConnectPeers(devices_);
    const bool many_gpus = CudaGpuOf(*devices_.front()) != CudaGpuOf(*devices_.back());
    if (!peers_)
      LogWarn("the GPUs do not reach each other's memory: shards exchange through pinned memory of the host");
    if (many_gpus && options_.use_nccl) nccl_ = NcclSums::Create(devices_);
    for (Device* device : devices_) {
      UseCudaGpu(*device);
      PreparePeerKernels();
      TANDEM_ASSIGN_OR_RETURN(Buffer control,
                              device->Allocate(sizeof(PeerControl), MemoryKind::kPinned, "exchange"));
      controls_.push_back(std::move(control));
    }
    TANDEM_RETURN_IF_ERROR(OpenChannel(ShardChannel::kCompute, ComputeBlocks(), nccl_.get()));
    TANDEM_RETURN_IF_ERROR(OpenChannel(ShardChannel::kRiders, kRiderBlocks, nullptr));
    if (nccl_) TANDEM_RETURN_IF_ERROR(ChooseNccl());
    UseCudaGpu(*devices_.front());
    return {};
  }

  int size() const override { return static_cast<int>(devices_.size()); }
  Collective* Of(int rank, ShardChannel channel) override {
    return ends_[static_cast<size_t>(channel)][static_cast<size_t>(rank)].get();
  }

  void Abort(std::string reason) override {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_) reason_ = std::move(reason);
    }
    for (const Buffer& control : controls_) {
      std::atomic_ref(control.as<PeerControl>()->aborted).store(1, std::memory_order_release);
    }
    if (nccl_) nccl_->Abort();
  }

  std::optional<std::chrono::milliseconds> unbounded_timeout() const override {
    return nccl_ ? std::optional(options_.timeout) : std::nullopt;
  }

  std::optional<Error> failure() const override {
    if (!Reason()) LookForFailure();
    const std::optional<std::string> reason = Reason();
    if (!reason) return std::nullopt;
    return MakeError(ErrorCode::kUnavailable, "{}", *reason);
  }

 private:
  std::optional<std::string> Reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  void LookForFailure() const {
    // Abort changes what calls do, not what they answer: a failure is there before it is looked for.
    auto* self = const_cast<CudaGroup*>(this);
    for (const Buffer& control : controls_) {
      const uint32_t late = std::atomic_ref(control.as<PeerControl>()->late).load(std::memory_order_acquire);
      if (late == 0) continue;
      return self->Abort(fmt::format("shard {} of {} has kept the others waiting for {:g} s", late - 1,
                                     size(), std::chrono::duration<double>(options_.timeout).count()));
    }
    if (!nccl_) return;
    if (std::optional<std::string> error = nccl_->Error()) self->Abort(std::move(*error));
  }

  // Of the own kernel, on the channel of the streams that compute.
  int ComputeBlocks() const {
    int num_blocks = peers_ ? kMostBlocks : kPinnedBlocks;
    for (const Device* device : devices_) num_blocks = std::min(num_blocks, CudaTargetOf(*device).num_sms);
    return num_blocks;
  }

  void SendToNcclFrom(int64_t size_bytes) {
    for (const auto& end : ends_[static_cast<size_t>(ShardChannel::kCompute)])
      end->set_nccl_from_bytes(size_bytes);
  }

  // From which size on sums go through NCCL, unless the options say it: the smallest that it is faster at,
  // and all for which the own kernel needs several rounds. One after the other those are as fast as NCCL, but
  // amid products they have been seen to take four to eight times as long.
  Status ChooseNccl() {
    if (options_.nccl_from_bytes) {
      SendToNcclFrom(*options_.nccl_from_bytes);
      return {};
    }
    constexpr int64_t kSmallest = int64_t{64} << 10;
    const int64_t one_round_bytes = PeerOneRoundBytes(ComputeBlocks());
    std::vector<Buffer> buffers;
    for (Device* device : devices_) {
      TANDEM_ASSIGN_OR_RETURN(Buffer buffer, device->Allocate(static_cast<size_t>(one_round_bytes),
                                                              MemoryKind::kDevice, "measuring sums"));
      buffers.push_back(std::move(buffer));
    }
    int64_t from_bytes = one_round_bytes + 1;
    for (int64_t size_bytes = one_round_bytes; size_bytes >= kSmallest; size_bytes /= 2) {
      SendToNcclFrom(std::numeric_limits<int64_t>::max());
      const double own_us = TimeOfSums(buffers, size_bytes);
      SendToNcclFrom(0);
      const double nccl_us = TimeOfSums(buffers, size_bytes);
      LogDebug("a sum of {} KiB takes {:.0f} us by the own kernel, {:.0f} us by NCCL", size_bytes >> 10,
               own_us, nccl_us);
      if (own_us <= nccl_us) break;
      from_bytes = size_bytes;
    }
    SendToNcclFrom(from_bytes);
    LogInfo("sums of {} KiB and more go through NCCL", from_bytes >> 10);
    const std::optional<Error> failed = failure();
    return failed ? Status(*failed) : Status();
  }

  // Microseconds of one, of bf16, on the slowest shard.
  double TimeOfSums(const std::vector<Buffer>& buffers, int64_t size_bytes) {
    constexpr int kWarmUps = 3;
    constexpr int kCalls = 20;
    std::vector<double> times(buffers.size());
    std::atomic<size_t> num_done{0};
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < buffers.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<Stream> stream =
            devices_[rank]->CreateStream(StreamKind::kCompute, "measuring sums");
        Collective& end = *Of(static_cast<int>(rank), ShardChannel::kCompute);
        const auto values = MatrixView::Dense(buffers[rank].data(), DType::kBF16, 1,
                                              size_bytes / static_cast<int64_t>(DTypeSize(DType::kBF16)));
        for (int i = 0; i < kWarmUps; ++i) end.AllReduce(*stream, values);
        stream->Synchronize();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kCalls; ++i) end.AllReduce(*stream, values);
        stream->Synchronize();
        const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
        times[rank] = time.count() / kCalls;
        ++num_done;
      });
    }
    // NCCL's waits have no bound.
    const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
    while (num_done < buffers.size() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (num_done < buffers.size())
      Abort(fmt::format("a first sum over the {} shards has not ended", buffers.size()));
    for (std::thread& thread : threads) thread.join();
    return *std::max_element(times.begin(), times.end());
  }

  Status OpenChannel(ShardChannel channel, int num_blocks, NcclSums* nccl) {
    PeerEnd end;
    end.size = size();
    end.num_blocks = num_blocks;
    end.timeout_ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(options_.timeout).count());
    const size_t num_flags = devices_.size() * static_cast<size_t>(num_blocks);
    std::vector<uint32_t*> counts;
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      const auto take = [&](size_t size_bytes, MemoryKind kind) -> Result<void*> {
        TANDEM_ASSIGN_OR_RETURN(Buffer buffer, devices_[rank]->Allocate(size_bytes, kind, "exchange"));
        void* data = buffer.data();
        memory_.push_back(std::move(buffer));
        return data;
      };
      // What others write.
      const MemoryKind kind = peers_ ? MemoryKind::kDevice : MemoryKind::kPinned;
      TANDEM_ASSIGN_OR_RETURN(void* inbox, take(PeerInboxBytes(size(), num_blocks), kind));
      TANDEM_ASSIGN_OR_RETURN(void* flags, take(num_flags * sizeof(uint32_t), kind));
      TANDEM_ASSIGN_OR_RETURN(void* own,
                              take(static_cast<size_t>(num_blocks) * sizeof(uint32_t), MemoryKind::kDevice));
      end.inboxes[rank] = static_cast<std::byte*>(inbox);
      end.flags[rank] = static_cast<uint32_t*>(flags);
      counts.push_back(static_cast<uint32_t*>(own));
    }
    auto& meeting = meetings_[static_cast<size_t>(channel)];
    meeting = std::make_unique<Meeting>(controls_.front().as<PeerControl>(), size(), options_.timeout);
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      end.rank = static_cast<int32_t>(rank);
      end.counts = counts[rank];
      end.control = controls_[rank].as<PeerControl>();
      ends_[static_cast<size_t>(channel)].push_back(
          std::make_unique<CudaCollective>(end, meeting.get(), nccl));
    }
    return {};
  }

  const std::vector<Device*> devices_;
  const CudaGroupOptions options_;
  bool peers_ = false;  // all reach each other's memory
  std::unique_ptr<NcclSums> nccl_;
  std::vector<Buffer> memory_;
  std::vector<Buffer> controls_;  // by rank, pinned
  mutable std::mutex mutex_;
  std::optional<std::string> reason_;
  std::array<std::unique_ptr<Meeting>, kNumShardChannels> meetings_;
  std::array<std::vector<std::unique_ptr<CudaCollective>>, kNumShardChannels> ends_;
};

}  // namespace

Result<std::unique_ptr<CollectiveGroup>> CreateCudaGroup(std::span<Device* const> devices,
                                                         const CudaGroupOptions& options) {
  auto group = std::make_unique<CudaGroup>(devices, options);
  TANDEM_RETURN_IF_ERROR(group->Open());
  return std::unique_ptr<CollectiveGroup>(std::move(group));
}

}  // namespace tandem
