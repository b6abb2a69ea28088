// When the tokens of one streamed completion came. Servers tell it in different ways: an event may bring a
// token or several, say how many there are so far or not, and hold back tokens that are no text yet.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/completion_event.h"
#include "bench/request_recorder.h"
#include "request/request.h"

namespace tandem {

// Not thread-safe. An event with a choice brings as many tokens as its usage says. Where events have none, a
// token each, unless a later usage says how many there were: then these are spread evenly over the events,
// and the tokens of one event came together. A last event that has a finish reason and no text brings a token
// only if there are more tokens than other events.
class StreamTokens {
 public:
  // max_tokens: for how many to make room.
  explicit StreamTokens(int64_t max_tokens) { arrivals_.reserve(static_cast<size_t>(max_tokens)); }

  // In the order in which they came.
  void Add(const CompletionEvent& event, Clock::time_point now);

  // Tells the recorder of all tokens, in order. Once, when the stream has ended.
  void Report(int64_t index, RequestRecorder* recorder) const;

 private:
  struct Arrival {
    Clock::time_point time;
    int64_t total = -1;  // tokens so far, this event's included; -1: the event does not say
  };

  std::vector<Arrival> arrivals_;
  std::optional<Clock::time_point> end_without_text_;
  std::optional<int64_t> total_;  // what the last usage said
};

}  // namespace tandem
