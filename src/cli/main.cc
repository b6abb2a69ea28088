#include <cstdio>
#include <exception>
#include <type_traits>

#include "cli/commands.h"
#include "cli/secret_arguments.h"
#include "cli/shard_processes.h"

namespace {

constexpr int kRuntimeError = 1;

int Report(const tandem::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "tandem: %s\n", status.error().message.c_str());
  return kRuntimeError;
}

template <typename Options>
int RunOnEngine(const Options& options, tandem::EngineOptions* engine,
                tandem::Status (*command)(const Options&)) {
  return tandem::RunWithShards(
      engine, [&] { return command(options); }, Report);
}

int Run(int argc, char** argv) {
  tandem::CommandLine command = tandem::ParseCommandLine(argc, argv);
  tandem::OverwriteSecrets(argc, argv);
  return std::visit(
      [](auto& options) {
        using Options = std::decay_t<decltype(options)>;
        if constexpr (std::is_same_v<Options, int>) {
          return options;
        } else if constexpr (std::is_same_v<Options, tandem::ServeOptions>) {
          return RunOnEngine(options, &options.engine, tandem::Serve);
        } else if constexpr (std::is_same_v<Options, tandem::GenerateOptions>) {
          return RunOnEngine(options, &options.engine, tandem::Generate);
        } else if constexpr (std::is_same_v<Options, tandem::BenchOptions>) {
          return RunOnEngine(options, &options.engine, tandem::BenchOffline);
        } else if constexpr (std::is_same_v<Options, tandem::BenchCompareOptions>) {
          return RunOnEngine(options, &options.run.engine, tandem::BenchCompare);
        } else if constexpr (std::is_same_v<Options, tandem::BenchOnlineOptions>) {
          return RunOnEngine(options, &options.engine, tandem::BenchOnline);
        } else if constexpr (std::is_same_v<Options, tandem::ProfileCommandOptions>) {
          return Report(tandem::MeasureProfile(options));
        } else if constexpr (std::is_same_v<Options, tandem::PlanOptions>) {
          return Report(tandem::PlanMachine(options));
        } else {
          return Report(tandem::Doctor(options));
        }
      },
      command);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "tandem: %s\n", exception.what());
    return kRuntimeError;
  }
}
