// config.json and generation_config.json of a Hugging Face folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "load/model_config.h"

namespace tandem {

// config_json: a parsed config.json. source: its path, for messages. Fields that transformers gives a default
// have the same one here. Errors: kMalformedFile names the field; kUnsupported.
Result<ModelConfig> ParseHfConfig(const nlohmann::json& config_json, const std::string& source);

// Token ids of config.json, and on top what generation_config.json says (pass an empty object if there is
// none). Errors: kMalformedFile.
Result<GenerationDefaults> ParseHfGenerationDefaults(const nlohmann::json& config,
                                                     const std::string& config_source,
                                                     const nlohmann::json& generation_config,
                                                     const std::string& generation_source);

}  // namespace tandem
