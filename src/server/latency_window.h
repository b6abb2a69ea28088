// Latencies of the last minute, in percentiles.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/duration_histogram.h"

namespace tandem {

struct LatencySummary {
  uint64_t count = 0;
  double p50_ms = 0;
  double p90_ms = 0;
  double p99_ms = 0;
};

// What was added within the last minute, give or take the twelfth of it that has just begun. Not thread-safe.
class SlidingLatencies {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  void Add(double seconds, TimePoint now);
  LatencySummary Summary(TimePoint now) const;

 private:
  static constexpr int64_t kNumSlots = 12;
  struct Slot {
    int64_t index = -1;  // of the slot's five seconds, counted from the clock's beginning; -1: never used
    DurationHistogram histogram;
  };
  std::array<Slot, kNumSlots> slots_;
};

// Io thread only.
class LatencyWindow {
 public:
  void AddTimeToFirstToken(double seconds) { time_to_first_token_.Add(seconds, Now()); }
  void AddInterTokenLatency(double seconds) { inter_token_.Add(seconds, Now()); }
  // Mean of a sequence that has ended, its first token not counted.
  void AddTimePerOutputToken(double seconds) { per_output_token_.Add(seconds, Now()); }

  LatencySummary time_to_first_token() const { return time_to_first_token_.Summary(Now()); }
  LatencySummary inter_token() const { return inter_token_.Summary(Now()); }
  LatencySummary per_output_token() const { return per_output_token_.Summary(Now()); }

 private:
  static SlidingLatencies::TimePoint Now() { return std::chrono::steady_clock::now(); }
  SlidingLatencies time_to_first_token_;
  SlidingLatencies inter_token_;
  SlidingLatencies per_output_token_;
};

}  // namespace tandem
