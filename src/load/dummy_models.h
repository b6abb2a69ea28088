// Shapes of published models, for weights that need no file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/quantization.h"
#include "base/result.h"
#include "load/model_config.h"

namespace tandem {

// "llama-3.1-8b", ...: in the order in which a message lists them. "tiny" is nobody's: small enough for
// tests.
std::vector<std::string> DummyModelNames();

// "llama-3.1-8b:int4" apart.
struct DummyName {
  std::string_view shape;  // a part of what was parsed
  Quantization quantization = Quantization::kAuto;
};
// Errors: kInvalidArgument if what is behind a colon is none of int4, int8 and fp8; param is "dummy".
Result<DummyName> ParseDummyName(std::string_view name);

// name: with or without a quantization. Errors: those of ParseDummyName; kNotFound, with the names that there
// are; param is "dummy".
Result<ModelConfig> DummyModelConfig(std::string_view name);

}  // namespace tandem
