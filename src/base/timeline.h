// A timeline of what ran when, in lanes: of the first iterations, as a file for Perfetto or chrome://tracing,
// and of the last one, for whoever watches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem {

// Nanoseconds of std::chrono::steady_clock.
int64_t SteadyNowNs();

// "gpu", or with shards "gpu 0".
std::string LaneOfShard(std::string_view lane, int rank, int num_shards);

struct TimelineSpan {
  std::string lane;
  std::string name;
  int64_t begin_ns = 0;  // SteadyNowNs
  int64_t end_ns = 0;
};

// Any thread. Spans of one lane must not overlap.
class Timeline {
 public:
  // For the file: spans after the first max_spans are dropped. 0: there will be none.
  explicit Timeline(size_t max_spans) : max_spans_(max_spans), on_(max_spans > 0) {}

  // Whether anybody wants spans: those added otherwise are dropped.
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // Times: SteadyNowNs. number: shown beside the name (a layer, an iteration);
  // negative: none.
  void Add(std::string_view lane, std::string_view name, int64_t number, int64_t begin_ns, int64_t end_ns);

  // While watched, what ran last is kept too. Watching begins and ends with nothing.
  void Watch(bool watched);
  // What was added since the iteration before is that of the last one. Spans come when they end, so what
  // outlasts an iteration belongs to the next.
  void EndIteration();
  // Of the last iteration, in the order in which they ended; empty unless watched.
  std::vector<TimelineSpan> LastIteration() const;

  // Of the first max_spans:
  // Trace Event Format (JSON), times relative to the first span. Errors: kIo.
  Status WriteChromeTrace(const std::string& path) const;

 private:
  const size_t max_spans_;
  std::atomic<bool> on_;
  mutable std::mutex mutex_;
  std::vector<TimelineSpan> spans_;
  bool watched_ = false;
  std::vector<TimelineSpan> running_;  // since the last iteration
  std::vector<TimelineSpan> last_;
};

// Adds the time from its construction to its destruction, if spans are wanted when it begins. timeline: may
// be null.
class TimelineScope {
 public:
  TimelineScope(Timeline* timeline, std::string_view lane, std::string_view name, int64_t number = -1)
      : timeline_(timeline != nullptr && timeline->on() ? timeline : nullptr),
        lane_(lane),
        name_(name),
        number_(number) {
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
