#include "bench/engine_testing.h"

#include <string>

namespace tandem {

EngineOptions TestEngineOptions() {
  EngineOptions options;
  options.model = std::string(TANDEM_SOURCE_DIR) + "/tests/fixtures/families/llama2/model.gguf";
  options.dtype = DType::kF32;
  options.cpu_threads = 1;
  options.max_model_len = 64;
  options.gpu_kv_cache = CacheSize{CacheSize::Unit::kTokens, 512};
  options.strategy = "gpu-only";
  options.show_progress = false;
  options.cpu_trial = false;
  return options;
}

std::unique_ptr<Engine> CreateTestEngine(const EngineOptions& options) {
  return Engine::Create(options).value();
}

}  // namespace tandem
