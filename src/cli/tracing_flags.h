// The flag of tandem serve that says where traces go.
#pragma once

#include <string>

#include "base/result.h"
#include "server/server.h"

namespace CLI {
class App;
}

namespace tandem {

// As typed.
struct TracingFlags {
  std::string endpoint;
};

// flags outlives app.
void AddTracingFlags(CLI::App* app, TracingFlags* flags);

// Sets options->tracing by the flag and by the environment of the process; options->version is set. Errors:
// those of ReadTracingOptions.
Status SetTracingOptions(const TracingFlags& flags, ServerOptions* options);

}  // namespace tandem
