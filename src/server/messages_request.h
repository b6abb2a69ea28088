// Bodies of Anthropic's Messages API: translated to chat completions, and answered in its own form.
// docs/messages.md says what becomes of each field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "server/generation_request.h"

namespace tandem {

// As ParseChatRequest. Any thread.
std::optional<ApiError> ParseMessagesRequest(const nlohmann::ordered_json& body, const ModelContext& model,
                                             GenerationRequest* request);

// Tokens of the prompt that the body makes; max_tokens may be missing. Any thread.
std::optional<ApiError> CountMessagesTokens(const nlohmann::ordered_json& body, const ModelContext& model,
                                            int64_t* num_tokens);

}  // namespace tandem
