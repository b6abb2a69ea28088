// Flags that every command with an engine shares.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "engine/engine_options.h"

namespace CLI {
class App;
}

namespace tandem {

// As typed; ToEngineOptions says what of it this build can do.
struct EngineFlags {
  EngineOptions options;
  std::string dtype = "auto";
  std::string rope_scaling;
  std::string gpu_kv_cache;
  std::string cpu_kv_cache;
  std::string gpu_memory_limit;
  std::optional<double> gpu_memory_utilization;
  std::optional<int64_t> gpu_sm_limit;
  int64_t tensor_parallel_size = 1;
  std::string log_level = "info";
};

// Each flag also has an environment variable: --max-model-len, TANDEM_MAX_MODEL_LEN. flags outlives app.
void AddEngineFlags(CLI::App* app, EngineFlags* flags);

// Errors: kInvalidArgument, kUnsupported; param is the flag without dashes.
Result<EngineOptions> ToEngineOptions(const EngineFlags& flags);
// "auto" is absent.
Result<std::optional<DType>> ParseDTypeFlag(std::string_view name);

}  // namespace tandem
