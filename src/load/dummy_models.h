// Shapes of published models, for weights that need no file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "load/model_config.h"

namespace tandem {

// "llama-3.1-8b", ...: in the order in which a message lists them. "tiny" is nobody's: small enough for
// tests.
std::vector<std::string> DummyModelNames();

// Errors: kNotFound, with the names that there are; param is "dummy".
Result<ModelConfig> DummyModelConfig(std::string_view name);

}  // namespace tandem
