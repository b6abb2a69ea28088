// Spans as OTLP's JSON (opentelemetry.io/docs/specs/otlp), and the answer of who received them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracing/span.h"

namespace tandem {

// An ExportTraceServiceRequest. resource: attributes of what made the spans; version: of this program. Bytes
// that are no UTF-8 are replaced.
std::string OtlpTraceRequest(const Attributes& resource, std::string_view version,
                             const std::vector<Span>& spans);

// How many spans an ExportTraceServiceResponse says were not taken. message: why, if it says so.
int64_t OtlpRejectedSpans(std::string_view response, std::string* message);

}  // namespace tandem
