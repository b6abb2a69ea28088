// A body of Anthropic's Messages API to one of chat completions, part by part. Each returns the error, which
// names the field as that API does, or nothing and adds its fields to *chat. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"

namespace tandem {

// "system" and "messages" to "messages", and "continue_final_message" where the last one is the assistant's.
std::optional<ApiError> TranslateMessagesConversation(const nlohmann::ordered_json& body,
                                                      nlohmann::ordered_json* chat);

// "tools" and "tool_choice" to those of chats, and "parallel_tool_calls". *indices: where each tool of *chat
// stands among those of the body, some of which are dropped.
std::optional<ApiError> TranslateMessagesTools(const nlohmann::ordered_json& body,
                                               nlohmann::ordered_json* chat, std::vector<size_t>* indices);

}  // namespace tandem
