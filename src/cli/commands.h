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
// Every workload with every strategy, in one engine.
Status BenchCompare(const BenchCompareOptions& options);
// As BenchOffline; requests that were rejected are no failures.
Status BenchOnline(const BenchOnlineOptions& options);
// Measures the costs of a model's parts, keeps them for later starts, and prints them.
Status MeasureProfile(const ProfileCommandOptions& options);
// What a machine that need not be here would make of a workload.
Status PlanMachine(const PlanOptions& options);
Status Doctor(const DoctorOptions& options);

}  // namespace tandem
