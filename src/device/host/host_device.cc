#include "device/host/host_device.h"

#include <sys/mman.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/topology.h"
#include "device/host/host_sync.h"

namespace tandem {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

class FifoStream : public HostStream {
 public:
  FifoStream(int num_threads, std::string_view name)
      : name_(name), pool_(num_threads, name), worker_([this] { WorkerMain(); }) {}

  ~FifoStream() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    queue_changed_.notify_one();
    worker_.join();
  }

  std::string_view name() const override { return name_; }

  void Enqueue(Work work) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    queue_changed_.notify_one();
  }

  void Copy(void* dst, const void* src, size_t size_bytes) override {
    Enqueue([=](ComputePool&) { std::memcpy(dst, src, size_bytes); });
  }

  void Record(Event& event) override {
    auto& host_event = dynamic_cast<HostEvent&>(event);
    const uint64_t number = host_event.BeginRecord();
    Enqueue([&host_event, number](ComputePool&) { host_event.CompleteRecord(number); });
  }

  void Wait(Event& event) override {
    auto& host_event = dynamic_cast<HostEvent&>(event);
    const uint64_t number = host_event.latest_record();
    Enqueue([&host_event, number](ComputePool&) { host_event.WaitFor(number); });
  }

  void SetFlag(Flag& flag, uint32_t value) override {
    Enqueue([&flag, value](ComputePool&) { flag.Set(value); });
  }

  void WaitFlag(Flag& flag, uint32_t value) override {
    // An abort is seen by whoever reads the flag after the iteration; the stream just goes on.
    Enqueue([&flag, value](ComputePool&) { static_cast<void>(flag.Wait(value)); });
  }

  void Synchronize() override {
    HostEvent event;
    Record(event);
    event.Synchronize();
  }

 private:
  void WorkerMain() {
    SetThreadName(name_);
    std::deque<Work> batch;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        queue_changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        batch.swap(queue_);
      }
      for (Work& work : batch) {
        work(pool_);
        work = nullptr;
      }
      batch.clear();
    }
  }

  const std::string name_;
  ComputePool pool_;
  std::mutex mutex_;
  std::condition_variable queue_changed_;
  std::deque<Work> queue_;
  bool stopping_ = false;
  std::thread worker_;  // last: starts when everything it uses exists
};

class HostDevice : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options) : options_(options) {
    const int cores = MachineTopology().num_physical_cores;
    if (options_.num_compute_threads <= 0) options_.num_compute_threads = cores;
    if (options_.num_cpu_attention_threads <= 0) options_.num_cpu_attention_threads = cores;
  }

  std::string_view backend() const override { return "host"; }

  std::string Description() const override {
    return fmt::format("{}, {} compute threads", MachineTopology().cpu_model, options_.num_compute_threads);
  }

  Result<Buffer> Allocate(size_t size_bytes, MemoryKind /*kind*/, std::string_view what) override {
    if (size_bytes == 0) return Buffer();
    // Anonymous memory is touched lazily, so ask before promising it.
    const int64_t available = AvailableMemoryBytes();
    if (static_cast<uint64_t>(available) < size_bytes) {
      return MakeError(ErrorCode::kResourceExhausted,
                       "not enough memory for {}: {} MiB wanted, {} MiB available", what, size_bytes >> 20,
                       available >> 20);
    }
    void* data =
        mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return MakeError(ErrorCode::kResourceExhausted,
                       "not enough memory for {}: {} MiB wanted, the system refused: {}", what,
                       size_bytes >> 20, std::strerror(errno));
    }
    // Only a wish: without huge pages everything works, somewhat slower.
    if (size_bytes >= kHugePageBytes) static_cast<void>(madvise(data, size_bytes, MADV_HUGEPAGE));
    return Buffer(data, size_bytes, [size_bytes](void* address) { munmap(address, size_bytes); });
  }

  std::unique_ptr<Stream> CreateStream(StreamKind kind, std::string_view name) override {
    switch (kind) {
      case StreamKind::kCompute:
        return std::make_unique<FifoStream>(options_.num_compute_threads, name);
      case StreamKind::kCpuAttention:
        return std::make_unique<FifoStream>(options_.num_cpu_attention_threads, name);
      case StreamKind::kCopy:
        break;
    }
    return std::make_unique<FifoStream>(1, name);
  }

  std::unique_ptr<Event> CreateEvent() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Flag> CreateFlag() override { return std::make_unique<HostFlag>(); }
  size_t FreeBytes(MemoryKind /*kind*/) const override { return static_cast<size_t>(AvailableMemoryBytes()); }

 private:
  HostDeviceOptions options_;
};

}  // namespace

HostStream& AsHostStream(Stream& stream) {
  auto* host_stream = dynamic_cast<HostStream*>(&stream);
  TANDEM_CHECK(host_stream != nullptr, "stream {} is not of the host backend", stream.name());
  return *host_stream;
}

std::unique_ptr<Device> CreateHostDevice(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace tandem
