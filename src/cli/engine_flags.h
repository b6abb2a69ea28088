// Flags that every command with an engine shares.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  std::string quantization = "auto";
  std::string rope_scaling;
  std::string kv_events_config;
  std::vector<std::string> served_model_names;
  std::string gpu_kv_cache;
  std::string cpu_kv_cache;
  std::string kv_transit;
  std::string gpu_memory_limit;
  std::optional<double> gpu_memory_utilization;
  std::optional<int64_t> gpu_sm_limit;
  std::string log_level = "info";
};

// Each flag also has an environment variable: --max-model-len, TANDEM_MAX_MODEL_LEN. flags outlives app.
void AddEngineFlags(CLI::App* app, EngineFlags* flags);

// Puts the names that were typed into the options. They are all words up to the next flag: where no model was
// named, the last of several is the model. Error: it is no file or folder; param is "model".
Status ResolveNames(EngineFlags* flags);

// ResolveNames among others. Errors: kInvalidArgument, kUnsupported; param is the flag without dashes.
Result<EngineOptions> ToEngineOptions(const EngineFlags& typed);
// "auto" is absent.
Result<std::optional<DType>> ParseDTypeFlag(std::string_view name);

}  // namespace tandem
