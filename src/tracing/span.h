// A span: something that took from one time to another, as part of a trace.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tracing/trace_context.h"

namespace tandem {

using AttributeValue = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

struct SpanEvent {
  std::string name;
  int64_t time_ns = 0;
  Attributes attributes;
};

// Times are nanoseconds since 1970.
struct Span {
  enum class Kind { kInternal, kServer };

  TraceId trace_id{};
  SpanId span_id{};
  SpanId parent_id{};  // zero: the first of its trace
  bool parent_is_remote = false;
  std::string trace_state;
  std::string name;
  Kind kind = Kind::kInternal;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  Attributes attributes;
  std::vector<SpanEvent> events;
  bool failed = false;
  std::string error;  // what went wrong, if failed
};

}  // namespace tandem
