#include "device/host/fifo_stream.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/topology.h"
#include "device/host/compute_pool.h"
#include "device/host/host_device.h"
#include "device/host/host_sync.h"

namespace tandem {
namespace {

class FifoStream;

// What all streams that take part have enqueued, in that order: events have nothing to add.
struct HostGraph : Graph {
  std::vector<HostStream::Work> work;
  bool recording = true;
  std::vector<FifoStream*> branches;  // meanwhile: other streams that take part
};

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
    if (recording_ != nullptr) {
      recording_->work.push_back(std::move(work));
      ++num_recorded_;
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    queue_changed_.notify_one();
  }

  void Copy(void* dst, const void* src, size_t size_bytes) override {
    // Of nothing, which may be nowhere, nothing.
    if (size_bytes == 0) return;
    Enqueue([=](ComputePool&) { std::memcpy(dst, src, size_bytes); });
  }

  void CopyRows(void* dst, size_t dst_stride_bytes, const void* src, size_t src_stride_bytes,
                size_t row_bytes, size_t num_rows) override {
    TANDEM_CHECK(row_bytes <= dst_stride_bytes && row_bytes <= src_stride_bytes,
                 "rows of {} bytes, strides {} and {}", row_bytes, dst_stride_bytes, src_stride_bytes);
    Enqueue([=](ComputePool&) {
      auto* to = static_cast<std::byte*>(dst);
      const auto* from = static_cast<const std::byte*>(src);
      for (size_t row = 0; row < num_rows; ++row) {
        std::memcpy(to + row * dst_stride_bytes, from + row * src_stride_bytes, row_bytes);
      }
    });
  }

  void BeginCapture() override {
    TANDEM_CHECK(recording_ == nullptr, "stream {} is recording already", name_);
    capture_ = std::make_unique<HostGraph>();
    recording_ = capture_.get();
  }
  std::unique_ptr<Graph> EndCapture() override {
    TANDEM_CHECK(capture_ != nullptr, "stream {} is not recording", name_);
    for (FifoStream* branch : capture_->branches) {
      TANDEM_CHECK(branch->num_joined_ == branch->num_recorded_,
                   "stream {}: a graph without the end of what stream {} does", name_, branch->name_);
      branch->recording_ = nullptr;
    }
    capture_->branches.clear();
    capture_->recording = false;
    recording_ = nullptr;
    return std::move(capture_);
  }
  void Launch(Graph& graph) override {
    auto& host_graph = dynamic_cast<HostGraph&>(graph);
    Enqueue([&host_graph](ComputePool& pool) {
      for (const Work& work : host_graph.work) work(pool);
    });
  }

  void Stamp(uint64_t* time_ns) override {
    Enqueue([time_ns](ComputePool&) {
      *time_ns = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                           std::chrono::steady_clock::now().time_since_epoch())
                                           .count());
    });
  }

  void Delay(std::chrono::nanoseconds time) override {
    Enqueue([time](ComputePool&) {
      const auto end = std::chrono::steady_clock::now() + time;
      while (std::chrono::steady_clock::now() < end) {
      }
    });
  }

  // Profilers of host code see functions; there is nothing to add.
  void BeginRange(const char* /*name*/) override {}
  void EndRange() override {}

  void Record(Event& event) override {
    auto& host_event = dynamic_cast<HostEvent&>(event);
    host_event.set_mark({.graph = recording_, .stream = this, .num_works = num_recorded_});
    if (recording_ != nullptr) return;
    const uint64_t number = host_event.BeginRecord();
    Enqueue([&host_event, number](ComputePool&) { host_event.CompleteRecord(number); });
  }

  void Wait(Event& event) override {
    auto& host_event = dynamic_cast<HostEvent&>(event);
    if (recording_ != nullptr || host_event.mark().graph != nullptr) {
      WaitInGraph(host_event.mark());
      return;
    }
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
  void SynchronizeTo(Event& event) override { event.Synchronize(); }

 private:
  void WaitInGraph(const HostEvent::Mark& mark) {
    TANDEM_CHECK(mark.graph != nullptr && (recording_ == nullptr || recording_ == mark.graph),
                 "stream {}: an event of the graph meets one of outside", name_);
    if (recording_ == nullptr) {
      recording_ = dynamic_cast<HostGraph*>(mark.graph);
      TANDEM_CHECK(recording_->recording, "stream {}: an event of a graph, which has ended", name_);
      recording_->branches.push_back(this);
      num_recorded_ = 0;
      num_joined_ = 0;
    }
    if (capture_ == nullptr) return;
    for (FifoStream* branch : capture_->branches) {
      if (branch == mark.stream) branch->num_joined_ = mark.num_works;
    }
  }

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
  std::unique_ptr<HostGraph> capture_;  // between BeginCapture and EndCapture
  HostGraph* recording_ = nullptr;      // that, or the graph of another stream; null: works are run
  int64_t num_recorded_ = 0;            // works of this stream in it
  int64_t num_joined_ = 0;              // of which the graph's own stream has waited for
  std::mutex mutex_;
  std::condition_variable queue_changed_;
  std::deque<Work> queue_;
  bool stopping_ = false;
  std::thread worker_;  // last: starts when everything it uses exists
};

}  // namespace

std::unique_ptr<Stream> CreateFifoStream(int num_threads, std::string_view name) {
  return std::make_unique<FifoStream>(num_threads, name);
}

}  // namespace tandem
