#include "device/host/host_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/param_error.h"
#include "base/round_up.h"
#include "base/topology.h"
#include "device/host/fifo_stream.h"
#include "device/host/host_sync.h"

namespace tandem {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr int64_t kBytesPerMiB = int64_t{1} << 20;
// Under a limit of the address space: what stays for the stacks of threads and for everything small.
constexpr int64_t kAddressSpaceReserveBytes = 128 * kBytesPerMiB;
// One in so many free bytes stays for everything small; a machine without any kills the process.
constexpr int64_t kReservedShare = 32;

size_t PageBytes() {
  static const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return page_bytes;
}

struct Mapping {
  void* data = nullptr;  // null: refused, errno says why
  size_t size_bytes = 0;
};

// Large mappings start and end at a huge page's border, so that no part of them is left with small pages.
Mapping Map(size_t size_bytes) {
  const bool large = size_bytes >= kHugePageBytes;
  const size_t unit = large ? kHugePageBytes : PageBytes();
  if (size_bytes > std::numeric_limits<size_t>::max() - 2 * unit) {
    errno = ENOMEM;
    return {};
  }
  const size_t mapped_bytes = RoundUp(size_bytes, unit);
  const size_t slack = large ? kHugePageBytes : 0;
  void* address = mmap(nullptr, mapped_bytes + slack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return {};
  if (!large) return {address, mapped_bytes};
  auto* begin = static_cast<std::byte*>(address);
  const size_t head =
      RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePageBytes) - reinterpret_cast<uintptr_t>(begin);
  if (head > 0) munmap(begin, head);
  if (head < slack) munmap(begin + head + mapped_bytes, slack - head);
  static std::once_flag checked;
  std::call_once(checked, [] {
    if (HugePagesForbidden()) {
      LogWarn(
          "huge pages are off (/sys/kernel/mm/transparent_hugepage/enabled is never): memory is read more "
          "slowly");
    }
  });
  // Only a wish: without huge pages everything works, somewhat slower.
  static_cast<void>(madvise(begin + head, mapped_bytes, MADV_HUGEPAGE));
  return {begin + head, mapped_bytes};
}

// Bytes of [data, data + size_bytes) that the system has not provided yet.
size_t UntouchedBytes(void* data, size_t size_bytes) {
  constexpr size_t kPagesAtOnce = size_t{1} << 16;
  const size_t page_bytes = PageBytes();
  std::vector<unsigned char> resident(kPagesAtOnce);
  size_t untouched = 0;
  for (size_t begin = 0; begin < size_bytes; begin += kPagesAtOnce * page_bytes) {
    const size_t length = std::min(kPagesAtOnce * page_bytes, size_bytes - begin);
    const auto num_pages = static_cast<std::ptrdiff_t>((length + page_bytes - 1) / page_bytes);
    // A system that cannot tell: all of it, which errs on the safe side.
    if (mincore(static_cast<std::byte*>(data) + begin, length, resident.data()) != 0) return size_bytes;
    untouched +=
        page_bytes * static_cast<size_t>(std::count_if(resident.begin(), resident.begin() + num_pages,
                                                       [](unsigned char page) { return (page & 1) == 0; }));
  }
  return untouched;
}

void PlaceParts(void* data, size_t size_bytes, const AllocateOptions& options) {
  if (MachineTopology().numa_nodes.size() < 2 || (options.num_parts == 1 && options.nodes.empty())) return;
  const std::vector<NumaNode> nodes = NumaNodesAt(options.nodes);
  const auto num_parts = static_cast<size_t>(options.num_parts);
  const size_t part_bytes = size_bytes / num_parts;
  for (size_t part = 0; part < num_parts; ++part) {
    // A page that two parts share goes to the second one.
    const size_t begin = part * part_bytes / PageBytes() * PageBytes();
    const Status placed =
        PreferNumaNode(static_cast<std::byte*>(data) + begin, (part + 1) * part_bytes - begin,
                       nodes[part % nodes.size()].os_index);
    if (placed.ok()) continue;
    static std::once_flag told;
    std::call_once(told, [&] { LogWarn("{}: reads may cross nodes", placed.error().message); });
    return;
  }
}

Error NotEnoughMemory(size_t size_bytes, std::string_view what, const AllocateOptions& options,
                      const std::string& reason) {
  const std::string remedy = options.flag.empty() ? "" : fmt::format("; make --{} smaller", options.flag);
  return MakeParamError(ErrorCode::kResourceExhausted, options.flag,
                        "not enough memory for {}: {} MiB wanted, {}{}", what,
                        DivideUp(size_bytes, size_t{kBytesPerMiB}), reason, remedy);
}

// What was promised: anonymous memory is taken from the machine when it is first touched, so the free memory
// that the system reports still contains what earlier allocations will touch.
class MemoryBooks {
 public:
  // Guards everything; held by the callers.
  std::mutex mutex;

  // Bytes that can be promised now. Exact if that is less than wanted_bytes, else at least wanted_bytes.
  int64_t Available(size_t wanted_bytes) {
    const int64_t address_space = std::max<int64_t>(0, AddressSpaceLeftBytes() - kAddressSpaceReserveBytes);
    const int64_t reported_bytes = AvailableMemoryBytes();
    const int64_t free_bytes = reported_bytes - reported_bytes / kReservedShare;
    const auto left = [&] {
      return std::min(address_space,
                      std::max<int64_t>(0, free_bytes - static_cast<int64_t>(untouched_bytes_)));
    };
    // What has been touched meanwhile still counts as untouched, which errs on the safe side; looking at
    // every page takes a while, so only when the answer depends on it.
    if (static_cast<uint64_t>(left()) < wanted_bytes) Recount();
    return left();
  }

  void Promise(const Mapping& mapping) {
    promises_.emplace(mapping.data, PromisedBytes{mapping.size_bytes, mapping.size_bytes});
    untouched_bytes_ += mapping.size_bytes;
  }

  void Forget(void* data) {
    const auto found = promises_.find(data);
    untouched_bytes_ -= found->second.untouched;
    promises_.erase(found);
  }

 private:
  struct PromisedBytes {
    size_t size = 0;
    size_t untouched = 0;
  };

  void Recount() {
    untouched_bytes_ = 0;
    for (auto& [data, promise] : promises_) {
      if (promise.untouched > 0) promise.untouched = UntouchedBytes(data, promise.size);
      untouched_bytes_ += promise.untouched;
    }
  }

  std::map<void*, PromisedBytes> promises_;
  size_t untouched_bytes_ = 0;
};

class HostDevice : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options) : options_(options) {
    const int cores = MachineTopology().num_physical_cores;
    if (options_.num_compute_threads <= 0) options_.num_compute_threads = cores;
  }

  std::string_view backend() const override { return "host"; }

  std::string Description() const override {
    return fmt::format("{}, {} compute threads", MachineTopology().cpu_model, options_.num_compute_threads);
  }

  using Device::Allocate;
  Result<Buffer> Allocate(size_t size_bytes, MemoryKind /*kind*/, std::string_view what,
                          const AllocateOptions& options) override {
    TANDEM_CHECK(options.num_parts >= 1 && size_bytes % static_cast<size_t>(options.num_parts) == 0,
                 "{}: {} bytes in {} parts", what, size_bytes, options.num_parts);
    if (size_bytes == 0) return Buffer();
    const std::lock_guard lock(books_->mutex);
    if (size_bytes >= kHugePageBytes) {
      const int64_t available = books_->Available(size_bytes);
      if (static_cast<uint64_t>(available) < size_bytes) {
        return NotEnoughMemory(size_bytes, what, options,
                               fmt::format("{} MiB available", available / kBytesPerMiB));
      }
    }
    const Mapping mapping = Map(size_bytes);
    if (mapping.data == nullptr) {
      return NotEnoughMemory(size_bytes, what, options,
                             fmt::format("the system refused: {}", std::strerror(errno)));
    }
    PlaceParts(mapping.data, size_bytes, options);
    books_->Promise(mapping);
    return Buffer(mapping.data, size_bytes,
                  [books = books_, mapped_bytes = mapping.size_bytes](void* address) {
                    const std::lock_guard release_lock(books->mutex);
                    books->Forget(address);
                    munmap(address, mapped_bytes);
                  });
  }

  std::unique_ptr<Stream> CreateStream(StreamKind kind, std::string_view name) override {
    switch (kind) {
      case StreamKind::kCompute:
        return CreateFifoStream(options_.num_compute_threads, name);
      case StreamKind::kCopy:
        break;
    }
    return CreateFifoStream(1, name);
  }

  std::unique_ptr<Event> CreateEvent() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Flag> CreateFlag() override { return std::make_unique<HostFlag>(); }
  size_t FreeBytes(MemoryKind /*kind*/) const override {
    const std::lock_guard lock(books_->mutex);
    return static_cast<size_t>(books_->Available(std::numeric_limits<size_t>::max()));
  }
  bool KindsShareMemory() const override { return true; }
  int64_t ClockOffsetNs() override { return 0; }

 private:
  HostDeviceOptions options_;
  // Shared with the buffers, which may outlive the device.
  std::shared_ptr<MemoryBooks> books_ = std::make_shared<MemoryBooks>();
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
