#include "bench/stream_tokens.h"

namespace tandem {

void StreamTokens::Add(const CompletionEvent& event, Clock::time_point now) {
  if (event.completion_tokens) total_ = event.completion_tokens;
  if (!event.has_choice) return;
  if (!event.completion_tokens && !event.has_text && !event.finish_reason.empty()) {
    end_without_text_ = now;
    return;
  }
  arrivals_.push_back({.time = now, .total = event.completion_tokens.value_or(-1)});
}

void StreamTokens::Report(int64_t index, RequestRecorder* recorder) const {
  std::vector<Arrival> arrivals = arrivals_;
  if (end_without_text_ && total_.value_or(0) > static_cast<int64_t>(arrivals.size()) &&
      (arrivals.empty() || arrivals.back().total < *total_)) {
    arrivals.push_back({.time = *end_without_text_});
  }
  if (arrivals.empty()) return;
  if (total_) arrivals.back().total = *total_;
  int64_t reported = 0;
  for (size_t begin = 0; begin < arrivals.size();) {
    // Up to the next event that says how many tokens there are.
    size_t end = begin;
    while (end + 1 < arrivals.size() && arrivals[end].total < 0) ++end;
    ++end;
    const auto num_events = static_cast<int64_t>(end - begin);
    const int64_t before = reported;
    const int64_t total = arrivals[end - 1].total;
    const int64_t num_tokens = total < 0 ? num_events : total - before;
    for (size_t i = begin; i < end; ++i) {
      const auto rank = static_cast<int64_t>(i - begin) + 1;
      const int64_t until = before + (num_tokens * rank + num_events - 1) / num_events;
      if (until <= reported) continue;
      recorder->AddTokens(index, until - reported, false, arrivals[i].time);
      reported = until;
    }
    begin = end;
  }
}

}  // namespace tandem
