#include "cli/limit_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <limits>

#include "cli/env_flag.h"

namespace tandem {

void AddMaxNumBatchedTokensFlag(CLI::App* app, int64_t* value) {
  AddFlag(app, "max-num-batched-tokens", value, "Tokens in an iteration at most; 0: chosen by the engine")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
}

void AddAsyncCohortsFlag(CLI::App* app, int64_t* value) {
  AddFlag(app, "async-cohorts", value,
          "Cohorts over which async spreads the requests of the cpu tier at most; 0: layers + 1")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
}

}  // namespace tandem
