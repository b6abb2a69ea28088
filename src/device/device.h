// The device interface: memory, streams, events and flags of one backend.
//
// `host` (device/host) needs no GPU: a stream is a FIFO worker thread, so overlap is real. `cuda` maps each
// class to its CUDA counterpart. Nothing above this folder knows which backend runs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

enum class MemoryKind {
  kDevice,  // where the model runs (GPU memory; ordinary memory on the host backend)
  kPinned,  // host memory both sides reach: the cpu tier, announcements, staging
};

// Owns one allocation. Move-only; freed on destruction. The caller makes sure that no stream still uses it.
class Buffer {
 public:
  using Release = std::function<void(void*)>;

  Buffer() = default;
  Buffer(void* data, size_t size_bytes, Release release);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size_bytes() const { return size_bytes_; }

 private:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
  Release release_;
};

// Marks a point in a stream. Record it in one stream, wait for it in others or on the host. Reusable.
// A wait refers to the latest Record enqueued before the wait; an event never recorded is complete.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the calling host thread.
  virtual void Synchronize() = 0;
  // The same for timeout at most. False if it is not complete by then.
  virtual bool SynchronizeFor(std::chrono::microseconds timeout) = 0;
  virtual bool Complete() const = 0;
};

// A 32-bit sequence number in pinned memory: streams and host threads announce progress through it.
// Values only grow within an iteration; a wait for v is satisfied by any value >= v.
// Abort() releases every present and future wait until Reset(): whoever waited must look at
// aborted() before it trusts what it waited for. That is how a stuck partner ends in an error, not in a hang.
class Flag {
 public:
  virtual ~Flag() = default;
  virtual void Set(uint32_t value) = 0;
  virtual uint32_t value() const = 0;
  // Blocks the calling host thread. False if aborted.
  virtual bool Wait(uint32_t value) = 0;
  virtual void Abort() = 0;
  virtual bool aborted() const = 0;
  // Back to zero and not aborted. No stream or thread may be waiting.
  virtual void Reset() = 0;
};

// Work recorded once and enqueued as a whole, often. What it refers to stays where it is as long as the graph
// lives; values passed at the time of recording are part of it.
class Graph {
 public:
  virtual ~Graph() = default;
};

// Work runs in the order it was enqueued. Enqueueing is for one thread at a time; nothing here blocks
// the caller except Synchronize and SynchronizeTo.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::string_view name() const = 0;
  // dst and src: any mix of device and pinned memory, not overlapping; alive until the copy has run.
  virtual void Copy(void* dst, const void* src, size_t size_bytes) = 0;
  // num_rows pieces of row_bytes each; row i lies i strides behind dst and src. Strides are at least
  // row_bytes. One transfer, however many rows: for many short pieces far cheaper than a Copy each.
  virtual void CopyRows(void* dst, size_t dst_stride_bytes, const void* src, size_t src_stride_bytes,
                        size_t row_bytes, size_t num_rows) = 0;
  virtual void Record(Event& event) = 0;
  virtual void Wait(Event& event) = 0;
  virtual void SetFlag(Flag& flag, uint32_t value) = 0;
  virtual void WaitFlag(Flag& flag, uint32_t value) = 0;
  // Blocks until everything enqueued has run.
  virtual void Synchronize() = 0;
  // The same for what was enqueued before the event's latest Record, which was in this stream: results that
  // ops hand over at a Synchronize are there for these. What came later may go on.
  virtual void SynchronizeTo(Event& event) = 0;

  // Until EndCapture whatever is enqueued here is recorded instead of run. A stream that waits for an event
  // recorded meanwhile takes part with all it enqueues from there on, until this stream waits for an event
  // that it has recorded behind all of it: before EndCapture. Other events are not for graphs, and those of a
  // graph only for it until they are recorded anew.
  virtual void BeginCapture() = 0;
  virtual std::unique_ptr<Graph> EndCapture() = 0;
  // Enqueues the recorded work. graph: of this stream; alive until the work has run.
  virtual void Launch(Graph& graph) = 0;

  // *time_ns = when the stream gets here, on the device's clock (Device::ClockOffsetNs). time_ns: pinned
  // memory.
  virtual void Stamp(uint64_t* time_ns) = 0;

  // Takes so long, for work that is not there.
  virtual void Delay(std::chrono::nanoseconds time) = 0;

  // Names what the calling thread enqueues until EndRange, for the backend's profilers. Ranges nest. name:
  // static storage.
  virtual void BeginRange(const char* name) = 0;
  virtual void EndRange() = 0;
};

// A range from its construction to its destruction.
class StreamRange {
 public:
  StreamRange(Stream& stream, const char* name) : stream_(stream) { stream_.BeginRange(name); }
  ~StreamRange() { stream_.EndRange(); }
  StreamRange(const StreamRange&) = delete;
  StreamRange& operator=(const StreamRange&) = delete;

 private:
  Stream& stream_;
};

// How memory is to lie, beyond its kind.
struct AllocateOptions {
  // The memory is cut into this many equal parts, which its size is a multiple of.
  int64_t num_parts = 1;
  // Of MachineTopology().numa_nodes; part i lies on the NUMA node nodes[i % their number]. Empty: several
  // parts are dealt out to all nodes, one lies anywhere. Best effort: a machine that refuses says so in the
  // log, once.
  std::vector<int> nodes = {};
  // The flag, without dashes, that makes the allocation smaller: named in the error, which carries it as its
  // param.
  std::string_view flag = {};
};

// How much of the machine a stream's own work may use.
enum class StreamKind {
  kCompute,  // the model: all compute threads (host), the slice's SMs (cuda)
  kCopy,     // moves between tiers
};

class Device {
 public:
  virtual ~Device() = default;
  // "host" or "cuda": for messages and metrics, not for decisions.
  virtual std::string_view backend() const = 0;
  // Human-readable name of the hardware.
  virtual std::string Description() const = 0;
  // The NUMA node (its os_index) that the device is next to; -1: none in particular.
  virtual int numa_node() const { return -1; }
  // Zero-filled, 64-byte aligned; from 2 MiB on aligned to that, for huge pages. Error: kResourceExhausted,
  // which names what, how much was wanted and how much is available. Memory that was promised and not yet
  // touched counts as taken, so allocations that succeed fit together. Any thread.
  virtual Result<Buffer> Allocate(size_t size_bytes, MemoryKind kind, std::string_view what,
                                  const AllocateOptions& options) = 0;
  Result<Buffer> Allocate(size_t size_bytes, MemoryKind kind, std::string_view what) {
    return Allocate(size_bytes, kind, what, AllocateOptions{});
  }
  virtual std::unique_ptr<Stream> CreateStream(StreamKind kind, std::string_view name) = 0;
  virtual std::unique_ptr<Event> CreateEvent() = 0;
  virtual std::unique_ptr<Flag> CreateFlag() = 0;
  // Bytes of memory of this kind that Allocate could give now.
  virtual size_t FreeBytes(MemoryKind kind) const = 0;
  // True if both kinds come from the same memory: what one takes, the other lacks.
  virtual bool KindsShareMemory() const = 0;
  // What to add to a stamp of a stream to get nanoseconds of std::chrono::steady_clock. May block for some
  // microseconds.
  virtual int64_t ClockOffsetNs() = 0;
};

}  // namespace tandem
