// What a model's configuration alone says, without an engine.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/engine_options.h"
#include "load/model_config.h"

namespace tandem {

// Of the model or the dummy that the options name.
Result<ModelConfig> ConfigOfModel(const EngineOptions& options);
// The context that an engine with these options would have, in tokens.
Result<int64_t> ContextLength(const EngineOptions& options);

}  // namespace tandem
