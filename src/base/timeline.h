// A timeline of what ran when, in lanes, for Perfetto or chrome://tracing.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem {

// Nanoseconds of std::chrono::steady_clock.
int64_t SteadyNowNs();

// Any thread. Spans of one lane must not overlap.
class Timeline {
 public:
  // Spans after the first max_spans are dropped.
  explicit Timeline(size_t max_spans) : max_spans_(max_spans) {}

  // lane: static storage. Times: SteadyNowNs. number: shown beside the name (a layer, an iteration);
  // negative: none.
  void Add(std::string_view lane, std::string_view name, int64_t number, int64_t begin_ns, int64_t end_ns);
  bool full() const;

  // Trace Event Format (JSON), times relative to the first span. Errors: kIo.
  Status WriteChromeTrace(const std::string& path) const;

 private:
  struct Span {
    std::string_view lane;
    std::string name;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  const size_t max_spans_;
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
};

// Adds the time from its construction to its destruction. timeline: may be null.
class TimelineScope {
 public:
  TimelineScope(Timeline* timeline, std::string_view lane, std::string_view name, int64_t number = -1)
      : timeline_(timeline), lane_(lane), name_(name), number_(number) {
    if (timeline_ != nullptr) begin_ns_ = SteadyNowNs();
  }
  ~TimelineScope() {
    if (timeline_ != nullptr) timeline_->Add(lane_, name_, number_, begin_ns_, SteadyNowNs());
  }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  Timeline* timeline_;
  std::string_view lane_;
  std::string_view name_;
  int64_t number_;
  int64_t begin_ns_ = 0;
};

}  // namespace tandem
