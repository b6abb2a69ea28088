#include "server/latency_window.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kSlotLength{5};

int64_t SlotIndexAt(SlidingLatencies::TimePoint time) {
  return time.time_since_epoch() / kSlotLength;
}

}  // namespace

void SlidingLatencies::Add(double seconds, TimePoint now) {
  constexpr double kUsPerS = 1e6;
  const int64_t index = SlotIndexAt(now);
  Slot& slot = slots_[static_cast<size_t>(index % kNumSlots)];
  if (slot.index != index) slot = {.index = index, .histogram = {}};
  slot.histogram.AddUs(seconds * kUsPerS);
}

LatencySummary SlidingLatencies::Summary(TimePoint now) const {
  constexpr double kUsPerMs = 1e3;
  const int64_t oldest = SlotIndexAt(now) - kNumSlots + 1;
  DurationHistogram all;
  for (const Slot& slot : slots_) {
    if (slot.index >= oldest) all.Add(slot.histogram);
  }
  return {.count = all.count(),
          .p50_ms = all.QuantileUs(0.5) / kUsPerMs,
          .p90_ms = all.QuantileUs(0.9) / kUsPerMs,
          .p99_ms = all.QuantileUs(0.99) / kUsPerMs};
}

}  // namespace tandem
