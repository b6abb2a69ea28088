#include "collective/cuda/cuda_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/param_error.h"
#include "base/topology.h"
#include "collective/cuda/meeting.h"
#include "collective/cuda/nccl_sums.h"
#include "collective/cuda/peer_exchange.h"
#include "collective/cuda/peer_layout.h"
#include "collective/cuda/process_peers.h"
#include "collective/exchange_state.h"
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
  // meeting: null where ranks do not wait for each other on the host. nccl: null, or where sums go from
  // nccl_from_bytes on.
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
  void AwaitReplay() override {
    if (meeting_ != nullptr) meeting_->Await(end_.rank);
  }

 private:
  // A capture runs nothing.
  CudaStream& Enter(Stream& stream) {
    CudaStream& cuda_stream = AsCudaStream(stream);
    if (meeting_ == nullptr) return cuda_stream;
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
  // devices: of ranks first.rank and up, all of them unless there are processes.
  CudaGroup(std::span<Device* const> devices, const Shard& first, Processes* processes,
            const CudaGroupOptions& options)
      : devices_(devices.begin(), devices.end()), first_(first), processes_(processes), options_(options) {}
  ~CudaGroup() override {
    stops_ = true;
    if (watch_.joinable()) watch_.join();
    // Others may have it open still, which is to end before it is freed, and may have nothing to say to this
    // process any more: it stays until the process ends.
    if (peers_elsewhere_) static_cast<void>(std::make_unique<Buffer>(std::move(memory_.front())).release());
  }
  CudaGroup(const CudaGroup&) = delete;
  CudaGroup& operator=(const CudaGroup&) = delete;

  Status Open() {
    TANDEM_CHECK(!devices_.empty(), "no shards");
    if (size() > kMostPeers) {
      return MakeParamError(ErrorCode::kUnsupported, "tensor-parallel-size",
                            "tensor-parallel-size {} is more than the {} shards that exchange on one host",
                            size(), kMostPeers);
    }
    TANDEM_RETURN_IF_ERROR(processes_ == nullptr ? MeetHere() : MeetElsewhere());
    if (processes_ != nullptr) watch_ = std::thread([this] { Watch(); });
    if (nccl_) TANDEM_RETURN_IF_ERROR(ChooseNccl());
    UseCudaGpu(*devices_.front());
    return {};
  }

  int size() const override { return first_.size; }
  Collective* Of(int rank, ShardChannel channel) override {
    const int index = rank - first_.rank;
    TANDEM_CHECK(index >= 0 && index < static_cast<int>(devices_.size()),
                 "shard {} is not in the process of shard {}", rank, first_.rank);
    return ends_[static_cast<size_t>(channel)][static_cast<size_t>(index)].get();
  }

  void Abort(std::string reason) override {
    if (processes_ != nullptr) {
      processes_->collectives()->Abort(std::move(reason));
    } else {
      state_.Abort(std::move(reason));
    }
    EndWaits();
  }

  std::optional<std::chrono::milliseconds> unbounded_timeout() const override {
    return nccl_ ? std::optional(options_.timeout) : std::nullopt;
  }

  std::optional<Error> failure() const override {
    // What is done about it changes what calls do, not what they answer: a failure is there before it is
    // looked for.
    auto* self = const_cast<CudaGroup*>(this);
    if (!Reason()) self->LookForFailure();
    std::optional<std::string> reason = Reason();
    if (!reason) return std::nullopt;
    // It may be another process that has given it.
    self->EndWaits();
    return MakeError(ErrorCode::kUnavailable, "{}", *reason);
  }

 private:
  std::optional<std::string> Reason() const {
    if (processes_ != nullptr) {
      const std::optional<Error> error = processes_->collectives()->failure();
      return error ? std::optional(error->message) : std::nullopt;
    }
    return state_.reason();
  }

  void LookForFailure() {
    LookForLateShard();
    if (!nccl_ || Reason()) return;
    if (std::optional<std::string> error = nccl_->Error()) Abort(std::move(*error));
  }

  void LookForLateShard() {
    for (const Buffer& control : controls_) {
      const uint32_t late = std::atomic_ref(control.as<PeerControl>()->late).load(std::memory_order_acquire);
      if (late == 0) continue;
      return Abort(fmt::format("shard {} of {} has kept the others waiting for {:g} s", late - 1, size(),
                               std::chrono::duration<double>(options_.timeout).count()));
    }
  }

  // Of the kernels that wait on the GPUs of this process, and of NCCL's.
  void EndWaits() {
    for (const Buffer& control : controls_)
      std::atomic_ref(control.as<PeerControl>()->aborted).store(1, std::memory_order_release);
    if (nccl_) nccl_->Abort();
  }

  // Tells the processes of a shard that is late for this GPU, and this GPU of what fails elsewhere: the
  // shard's own thread may be held up by a stream that is full. Not of NCCL, which may find it an error that
  // a process has come to its end before this one.
  void Watch() {
    SetThreadName("exchange");
    constexpr std::chrono::milliseconds kLook{50};
    for (; !stops_; std::this_thread::sleep_for(kLook)) {
      LookForLateShard();
      if (Reason()) return EndWaits();
    }
  }

  // Of the own kernel, on the channel of the streams that compute: what the GPUs of this process have room
  // for.
  int ComputeBlocks() const {
    int num_blocks = reach_memory_ ? kMostBlocks : kPinnedBlocks;
    for (const Device* device : devices_) num_blocks = std::min(num_blocks, CudaTargetOf(*device).num_sms);
    return num_blocks;
  }

  PeerLayout LayoutFor(int compute_blocks) const { return {size(), {compute_blocks, kRiderBlocks}}; }

  // Of the ranks here: what kernels take but the memory that others write.
  Status Prepare() {
    const auto num_counts = static_cast<size_t>(ComputeBlocks()) + kRiderBlocks;
    for (Device* device : devices_) {
      UseCudaGpu(*device);
      PreparePeerKernels();
      TANDEM_ASSIGN_OR_RETURN(Buffer control,
                              device->Allocate(sizeof(PeerControl), MemoryKind::kPinned, "exchange"));
      controls_.push_back(std::move(control));
      TANDEM_ASSIGN_OR_RETURN(
          Buffer counts, device->Allocate(num_counts * sizeof(uint32_t), MemoryKind::kDevice, "exchange"));
      counts_.push_back(std::move(counts));
    }
    return {};
  }

  Status MeetHere() {
    reach_memory_ = ConnectPeers(devices_);
    const bool many_gpus = CudaGpuOf(*devices_.front()) != CudaGpuOf(*devices_.back());
    if (!reach_memory_)
      LogWarn("the GPUs do not reach each other's memory: shards exchange through pinned memory of the host");
    if (many_gpus && options_.use_nccl) {
      if (const auto api = FindNccl()) {
        NcclApi::Id id;
        if (api->get_unique_id(&id) == 0) nccl_ = NcclSums::Create(*api, id, devices_, first_);
      }
    }
    TANDEM_RETURN_IF_ERROR(Prepare());
    compute_blocks_ = ComputeBlocks();
    std::vector<std::byte*> memories;
    for (Device* device : devices_) {
      // What others write.
      TANDEM_ASSIGN_OR_RETURN(
          Buffer memory,
          device->Allocate(LayoutFor(compute_blocks_).size_bytes(),
                           reach_memory_ ? MemoryKind::kDevice : MemoryKind::kPinned, "exchange"));
      memories.push_back(memory.as<std::byte>());
      memory_.push_back(std::move(memory));
    }
    OpenChannels(memories);
    return {};
  }

  // With the ranks of other processes: every step is one of all.
  Status MeetElsewhere() {
    if (const Shard host = processes_->on_host(); host.size != size()) {
      return MakeParamError(ErrorCode::kUnsupported, "tensor-parallel-size",
                            "{} of {} shards are on this host: on GPUs they exchange on one", host.size,
                            size());
    }
    reach_memory_ = true;
    const auto allocate = [&]() -> Result<Buffer> {
      TANDEM_RETURN_IF_ERROR(Prepare());
      return devices_.front()->Allocate(LayoutFor(ComputeBlocks()).size_bytes(), MemoryKind::kDevice,
                                        "exchange");
    };
    Result<Buffer> memory = allocate();
    // It takes no GPU twice.
    const std::optional<NcclApi> api =
        options_.use_nccl && !options_.may_share_gpu ? FindNccl() : std::nullopt;
    PeerIntroduction own = {
        .gpu = CudaGpuUuid(*devices_.front()), .num_blocks = ComputeBlocks(), .has_nccl = api.has_value()};
    NcclApi::Id id;
    if (api && first_.rank == 0 && api->get_unique_id(&id) == 0)
      own.nccl_id.assign(id.bytes.data(), id.bytes.size());
    TANDEM_ASSIGN_OR_RETURN(peers_elsewhere_, ProcessPeers::Meet(processes_, *devices_.front(), memory,
                                                                 std::move(own), options_.may_share_gpu));
    memory_.push_back(std::move(memory).value());
    const std::vector<PeerIntroduction>& peers = peers_elsewhere_->introductions();
    compute_blocks_ = std::ranges::min(peers, {}, &PeerIntroduction::num_blocks).num_blocks;
    const std::string& nccl_id = peers.front().nccl_id;
    if (nccl_id.size() == id.bytes.size() && std::ranges::all_of(peers, &PeerIntroduction::has_nccl)) {
      std::memcpy(id.bytes.data(), nccl_id.data(), nccl_id.size());
      nccl_ = NcclSums::Create(*api, id, devices_, first_);
      if (LargestOfAll(nccl_ ? 0 : 1) != 0) nccl_.reset();
    }
    OpenChannels(peers_elsewhere_->memories());
    return {};
  }

  // With a word in the log where it is missing.
  std::optional<NcclApi> FindNccl() const {
    Result<NcclApi> api = LoadNccl();
    if (api.ok()) return *api;
    LogWarn("NCCL is missing ({}): sums of many rows over {} GPUs go through an own kernel",
            api.error().message, size());
    return std::nullopt;
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
    const int64_t one_round_bytes = PeerOneRoundBytes(compute_blocks_);
    std::vector<Buffer> buffers;
    const auto allocate = [&]() -> Status {
      for (Device* device : devices_) {
        TANDEM_ASSIGN_OR_RETURN(Buffer buffer, device->Allocate(static_cast<size_t>(one_round_bytes),
                                                                MemoryKind::kDevice, "measuring sums"));
        buffers.push_back(std::move(buffer));
      }
      return {};
    };
    const Status allocated = allocate();
    TANDEM_RETURN_IF_ERROR(processes_ == nullptr ? allocated : ShareStatus(processes_, allocated));
    int64_t from_bytes = one_round_bytes + 1;
    for (int64_t size_bytes = one_round_bytes; size_bytes >= kSmallest; size_bytes /= 2) {
      SendToNcclFrom(std::numeric_limits<int64_t>::max());
      const double own_us = LargestOfAll(TimeOfSums(buffers, size_bytes));
      SendToNcclFrom(0);
      const double nccl_us = LargestOfAll(TimeOfSums(buffers, size_bytes));
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

  // Of what each process has, so that all choose alike.
  double LargestOfAll(double value) const {
    if (processes_ == nullptr) return value;
    const auto all = ValuesOfAll(processes_, value);
    // After a failure nothing is chosen any more.
    return all ? std::ranges::max(*all) : value;
  }

  // Microseconds of one, of bf16, on the slowest shard of this process.
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
        Collective& end = *Of(first_.rank + static_cast<int>(rank), ShardChannel::kCompute);
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
    if (num_done < buffers.size()) Abort(fmt::format("a first sum over the {} shards has not ended", size()));
    for (std::thread& thread : threads) thread.join();
    return *std::max_element(times.begin(), times.end());
  }

  // memories: of all ranks.
  void OpenChannels(std::span<std::byte* const> memories) {
    OpenChannel(ShardChannel::kCompute, compute_blocks_, memories, nccl_.get());
    OpenChannel(ShardChannel::kRiders, kRiderBlocks, memories, nullptr);
  }

  void OpenChannel(ShardChannel channel, int num_blocks, std::span<std::byte* const> memories,
                   NcclSums* nccl) {
    const PeerLayout layout = LayoutFor(compute_blocks_);
    PeerEnd end;
    end.size = size();
    end.num_blocks = num_blocks;
    end.timeout_ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(options_.timeout).count());
    for (size_t rank = 0; rank < memories.size(); ++rank) {
      end.inboxes[rank] = layout.Inbox(memories[rank], channel);
      end.flags[rank] = layout.Flags(memories[rank], channel);
    }
    auto& meeting = meetings_[static_cast<size_t>(channel)];
    if (processes_ == nullptr)
      meeting = std::make_unique<Meeting>(controls_.front().as<PeerControl>(), size(), options_.timeout);
    for (size_t i = 0; i < devices_.size(); ++i) {
      end.rank = static_cast<int32_t>(first_.rank + static_cast<int>(i));
      end.counts = counts_[i].as<uint32_t>() + (channel == ShardChannel::kCompute ? 0 : compute_blocks_);
      end.control = controls_[i].as<PeerControl>();
      ends_[static_cast<size_t>(channel)].push_back(
          std::make_unique<CudaCollective>(end, meeting.get(), nccl));
    }
  }

  const std::vector<Device*> devices_;  // of the ranks here
  const Shard first_;                   // of these
  Processes* const processes_;          // null: all ranks are here
  const CudaGroupOptions options_;
  bool reach_memory_ = false;  // all of each other
  int compute_blocks_ = 0;     // of a kernel at most, on all ranks
  std::unique_ptr<NcclSums> nccl_;
  // By rank here. The first is what others write.
  std::vector<Buffer> memory_;
  std::vector<Buffer> controls_;  // pinned
  std::vector<Buffer> counts_;
  std::unique_ptr<ProcessPeers> peers_elsewhere_;
  ExchangeState state_;  // in one process; else the processes have it
  std::array<std::unique_ptr<Meeting>, kNumShardChannels> meetings_;
  std::array<std::vector<std::unique_ptr<CudaCollective>>, kNumShardChannels> ends_;
  std::atomic<bool> stops_{false};
  std::thread watch_;
};

}  // namespace

Result<std::unique_ptr<CollectiveGroup>> CreateCudaGroup(std::span<Device* const> devices,
                                                         const CudaGroupOptions& options) {
  const Shard first = {.rank = 0, .size = static_cast<int>(devices.size())};
  auto group = std::make_unique<CudaGroup>(devices, first, nullptr, options);
  TANDEM_RETURN_IF_ERROR(group->Open());
  return std::unique_ptr<CollectiveGroup>(std::move(group));
}

Result<std::unique_ptr<CollectiveGroup>> CreateCudaGroup(Device* device, Processes* processes,
                                                         const CudaGroupOptions& options) {
  auto group = std::make_unique<CudaGroup>(std::span(&device, 1), processes->shard(), processes, options);
  TANDEM_RETURN_IF_ERROR(group->Open());
  return std::unique_ptr<CollectiveGroup>(std::move(group));
}

}  // namespace tandem
