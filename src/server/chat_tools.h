// The tools of a chat request, and how its answer is read and bounded by them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "dialect/dialect.h"
#include "dialect/tool_choice.h"
#include "server/api_error.h"
#include "server/generation_request.h"

namespace tandem {

struct ChatTools {
  std::vector<ToolSpec> offered;  // that the model is told of and may call
  ToolChoice choice;
  bool parallel = true;  // several calls in an answer
};

// "tools", "tool_choice" and "parallel_tool_calls". Tools that only a vendor's cloud runs are dropped. Any
// thread.
std::optional<ApiError> ReadChatTools(const nlohmann::ordered_json& body, ChatTools* tools);

// The parts of request that say how the answer is taken apart, and what it has to follow: calls that are
// asked for, and what "response_format" and the like say. prompt: as rendered.
std::optional<ApiError> ReadAnswerForm(const nlohmann::ordered_json& body, const ModelContext& model,
                                       const ChatTools& tools, std::string_view prompt,
                                       GenerationRequest* request);

}  // namespace tandem
