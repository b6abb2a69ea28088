#include "cli/tracing_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>

#include "cli/env_flag.h"
#include "tracing/tracing_options.h"

namespace tandem {

void AddTracingFlags(CLI::App* app, TracingFlags* flags) {
  AddFlag(app, "otlp-traces-endpoint", &flags->endpoint,
          "Where a trace of each request is sent, as http://HOST:4318/v1/traces (OTLP as JSON); also by the "
          "OTEL_ variables of OpenTelemetry");
}

Status SetTracingOptions(const TracingFlags& flags, ServerOptions* options) {
  TANDEM_ASSIGN_OR_RETURN(options->tracing,
                          ReadTracingOptions(flags.endpoint, options->version,
                                             [](const char* name) { return std::getenv(name); }));
  return {};
}

}  // namespace tandem
