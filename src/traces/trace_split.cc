#include "traces/trace_split.h"

#include <cstddef>

namespace tandem {
namespace {

constexpr size_t kHeldOutOneIn = 3;

size_t NumHeldOut(std::span<const TraceRequest> trace) {
  return trace.size() / kHeldOutOneIn;
}

}  // namespace

std::span<const TraceRequest> TuningPart(std::span<const TraceRequest> trace) {
  return trace.first(trace.size() - NumHeldOut(trace));
}

std::span<const TraceRequest> HeldOutPart(std::span<const TraceRequest> trace) {
  return trace.last(NumHeldOut(trace));
}

}  // namespace tandem
