// Whether and where spans are sent: a flag, and the environment variables that OpenTelemetry's programs share
// (opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables and .../otel/protocol/exporter).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "http_client/server_url.h"
#include "tracing/sampler.h"
#include "tracing/span.h"

namespace tandem {

struct OtlpOptions {
  ServerUrl url;                                             // with the path
  std::vector<std::pair<std::string, std::string>> headers;  // of every request
  std::string ca_file;  // PEM file of the authorities that https servers' certificates are checked against
  Attributes resource;  // what makes the spans
  std::string version;  // of this program

  size_t max_queued_spans = 2048;                 // more are dropped
  size_t max_batch_spans = 512;                   // in a request; so many waiting are sent at once
  std::chrono::milliseconds delay{5000};          // after which fewer are sent
  std::chrono::milliseconds timeout{10'000};      // of a request
  std::chrono::milliseconds first_backoff{1000};  // doubles up to max_backoff
  std::chrono::milliseconds max_backoff{30'000};
  std::chrono::milliseconds max_retry_time{300'000};  // of a batch, which is dropped then
  std::chrono::milliseconds flush_time{5000};         // that the end may take
};

struct TracingOptions {
  OtlpOptions otlp;
  Sampler sampler;
};

// The value of an environment variable, null if there is none.
using ReadVariable = std::function<const char*(const char* name)>;

// endpoint: --otlp-traces-endpoint, empty if not given; then the environment names it. Nothing: no spans are
// wanted. Errors: kInvalidArgument, kUnsupported; param is the flag or the variable.
Result<std::optional<TracingOptions>> ReadTracingOptions(const std::string& endpoint,
                                                         const std::string& version,
                                                         const ReadVariable& variable);

}  // namespace tandem
