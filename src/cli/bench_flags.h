// Flags of tandem bench besides those of the engine.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "cli/engine_flags.h"

namespace CLI {
class App;
}

namespace tandem {

// As typed.
struct OnlineFlags {
  BenchOnlineOptions options;
  std::string rate;
  std::string arrivals;
  double time_scale = 0;  // 0: not given
};

struct CompareFlags {
  BenchCompareOptions options;
  std::string strategies = "gpu-only,asymmetric,async,auto";
};

// options and flags outlive app.
void AddBenchFlags(CLI::App* app, BenchOptions* options);
void AddCompareFlags(CLI::App* app, CompareFlags* flags);
void AddOnlineFlags(CLI::App* app, OnlineFlags* flags);

// Errors: kInvalidArgument, kUnsupported; param is the flag without dashes.
Result<BenchOptions> MakeBenchOptions(const EngineFlags& engine_flags, const BenchOptions& flags);
Result<BenchCompareOptions> MakeBenchCompareOptions(const EngineFlags& engine_flags,
                                                    const CompareFlags& flags);
// With --url no flag of the engine is needed; a model then says how large its vocabulary is.
Result<BenchOnlineOptions> MakeBenchOnlineOptions(const EngineFlags& engine_flags, const OnlineFlags& flags);

}  // namespace tandem
