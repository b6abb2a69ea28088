// What GET /tiers says, as JSON. docs/page.md has the fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/timeline.h"
#include "engine/live_view.h"
#include "server/latency_window.h"

namespace tandem {

struct TiersEvent {
  double time_s = 0;          // of a clock that only goes on
  std::string_view strategy;  // as --strategy named it
  // Null: the engine has had nothing to do since somebody watches, or has not looked yet.
  const LiveView* view = nullptr;
  EngineStats stats;  // without a view
  const LatencyWindow* latencies = nullptr;
};

std::string TiersJson(const TiersEvent& event);
// One iteration; times begin with it.
std::string TimelineJson(const std::vector<TimelineSpan>& spans);

}  // namespace tandem
