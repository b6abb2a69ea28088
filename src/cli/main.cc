#include <cstdio>
#include <exception>
#include <type_traits>

#include "cli/commands.h"
#include "cli/secret_arguments.h"

namespace {

constexpr int kRuntimeError = 1;

int Report(const tandem::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "tandem: %s\n", status.error().message.c_str());
  return kRuntimeError;
}

int Run(int argc, char** argv) {
  const tandem::CommandLine command = tandem::ParseCommandLine(argc, argv);
  tandem::OverwriteSecrets(argc, argv);
  return std::visit(
      [](const auto& options) {
        using Options = std::decay_t<decltype(options)>;
        if constexpr (std::is_same_v<Options, int>) {
          return options;
        } else if constexpr (std::is_same_v<Options, tandem::ServeOptions>) {
          return Report(tandem::Serve(options));
        } else if constexpr (std::is_same_v<Options, tandem::GenerateOptions>) {
          return Report(tandem::Generate(options));
        } else if constexpr (std::is_same_v<Options, tandem::BenchOptions>) {
          return Report(tandem::BenchOffline(options));
        } else if constexpr (std::is_same_v<Options, tandem::BenchCompareOptions>) {
          return Report(tandem::BenchCompare(options));
        } else if constexpr (std::is_same_v<Options, tandem::BenchOnlineOptions>) {
          return Report(tandem::BenchOnline(options));
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
