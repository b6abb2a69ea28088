#include "cli/model_of_flags.h"

#include <algorithm>
#include <memory>

#include "engine/loaded_model.h"
#include "load/checkpoint.h"

namespace tandem {

Result<ModelConfig> ConfigOfModel(const EngineOptions& options) {
  if (!options.dummy.empty()) return DummyConfigOf(options);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                          Checkpoint::Open(options.model, options.rope_scaling));
  return checkpoint->config();
}

Result<int64_t> ContextLength(const EngineOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const ModelConfig config, ConfigOfModel(options));
  return options.max_model_len > 0 ? std::min(options.max_model_len, config.max_position)
                                   : config.max_position;
}

}  // namespace tandem
