#include "tracing/tracer.h"

#include <utility>

namespace tandem {

Result<std::unique_ptr<Tracer>> Tracer::Start(const TracingOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(auto exporter, OtlpExporter::Start(options.otlp));
  return std::unique_ptr<Tracer>(new Tracer(options.sampler, std::move(exporter)));
}

std::optional<TraceStart> Tracer::Begin(const std::vector<std::string_view>& traceparents,
                                        const std::vector<std::string_view>& tracestates) const {
  std::optional<TraceContext> parent;
  if (traceparents.size() == 1) parent = ParseTraceparent(traceparents.front());
  TraceStart start{.trace_id = parent ? parent->trace_id : NewTraceId(), .parent_id = {}, .trace_state = {}};
  if (!sampler_.Samples(start.trace_id, parent)) return std::nullopt;
  if (parent) {
    start.parent_id = parent->span_id;
    // Without a parent the state is of no trace.
    start.trace_state = JoinTracestate(tracestates);
  }
  return start;
}

}  // namespace tandem
