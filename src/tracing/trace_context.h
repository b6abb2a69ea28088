// W3C Trace Context (www.w3.org/TR/trace-context): which trace a request belongs to, as its headers say.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// All zero: none.
using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// Where a span of another program is that caused what happens here.
struct TraceContext {
  TraceId trace_id{};
  SpanId span_id{};
  bool sampled = false;
};

// A traceparent header, without white space around it. Nothing where it is not valid: its reader begins a new
// trace. Versions later than 00 are read as far as 00 goes.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// The tracestate headers of a request as one, in their order. Empty where one of them is not valid: then it
// is as if there were none.
std::string JoinTracestate(const std::vector<std::string_view>& headers);

// Any thread. Random, never all zero.
TraceId NewTraceId();
SpanId NewSpanId();

// Lower-case hexadecimal digits.
std::string HexOf(const TraceId& id);
std::string HexOf(const SpanId& id);

}  // namespace tandem
