// Items of /v1/responses as messages of a chat.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/responses_tools.h"

namespace tandem {

struct ResponsesMessages {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  std::vector<std::string> params;  // the field that each came from
};

// Appends a message of "instructions".
void AddInstructions(const std::string& instructions, ResponsesMessages* messages);

// Appends what an item says; param: its name in errors. Calls follow the assistant's message that they are
// behind, and so do reasons the one that they are before.
std::optional<ApiError> AddResponsesItem(const nlohmann::ordered_json& item, const std::string& param,
                                         ResponsesMessages* messages);

// Drops reasons that nothing followed. After the last item.
void FinishMessages(ResponsesMessages* messages);

// What this API calls a field of the chat that was made of these.
std::string ResponsesFieldName(const std::string& chat_name, const ResponsesMessages& messages,
                               const ResponsesTools& tools);

}  // namespace tandem
