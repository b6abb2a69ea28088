// The door to tracing: who may be traced, and where spans go.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tracing/otlp_exporter.h"
#include "tracing/sampler.h"
#include "tracing/span.h"
#include "tracing/tracing_options.h"

namespace tandem {

// Where the first span of this program belongs.
struct TraceStart {
  TraceId trace_id{};
  std::optional<SpanId> parent_id;  // of another program
  std::string trace_state;
};

// Any thread.
class Tracer {
 public:
  // Errors: those of OtlpExporter::Start.
  static Result<std::unique_ptr<Tracer>> Start(const TracingOptions& options);

  // traceparents, tracestates: all headers of these names that a request has. Nothing: it is not recorded.
  std::optional<TraceStart> Begin(const std::vector<std::string_view>& traceparents,
                                  const std::vector<std::string_view>& tracestates) const;
  // Does not block.
  void Export(std::vector<Span> spans) { exporter_->Export(std::move(spans)); }
  OtlpCounts counts() const { return exporter_->counts(); }

 private:
  Tracer(const Sampler& sampler, std::unique_ptr<OtlpExporter> exporter)
      : sampler_(sampler), exporter_(std::move(exporter)) {}

  const Sampler sampler_;
  const std::unique_ptr<OtlpExporter> exporter_;
};

}  // namespace tandem
