// Events and flags of the host backend.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "device/device.h"

namespace tandem {

class HostEvent : public Event {
 public:
  void Synchronize() override;
  bool SynchronizeFor(std::chrono::microseconds timeout) override;
  bool Complete() const override;

  // Called when a Record is enqueued: the number that its completion will carry.
  uint64_t BeginRecord();
  // Called when the stream reaches that Record.
  void CompleteRecord(uint64_t number);
  // The latest Record enqueued so far; a wait enqueued now refers to it.
  uint64_t latest_record() const;
  void WaitFor(uint64_t number);

  // Of a Record that is part of a graph: the graph, and the stream with the number of its works in the graph
  // so far. For the thread that enqueues.
  struct Mark {
    Graph* graph = nullptr;
    const Stream* stream = nullptr;
    int64_t num_works = 0;
  };
  void set_mark(const Mark& mark) { mark_ = mark; }
  const Mark& mark() const { return mark_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable completed_changed_;
  uint64_t recorded_ = 0;
  uint64_t completed_ = 0;
  Mark mark_;
};

class HostFlag : public Flag {
 public:
  void Set(uint32_t value) override;
  uint32_t value() const override;
  bool Wait(uint32_t value) override;
  void Abort() override;
  bool aborted() const override;
  void Reset() override;

 private:
  // Value in the low half, aborted above it: one word, so that a waiter sees both change.
  static constexpr uint64_t kAborted = uint64_t{1} << 32;
  std::atomic<uint64_t> state_{0};
};

}  // namespace tandem
