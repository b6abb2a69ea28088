// The commands. Each returns an error for the user, or nothing when all went well.
#pragma once

#include "base/result.h"
#include "cli/command_line.h"

namespace tandem {

// Returns after SIGTERM or SIGINT: the first lets answers under way finish, the second cancels them.
Status Serve(const ServeOptions& options);
Status Generate(const GenerateOptions& options);
// Requests that fail are an error, though the result has been written.
Status BenchOffline(const BenchOptions& options);
Status Doctor(const DoctorOptions& options);

}  // namespace tandem
