// Tools of /v1/responses as the functions that chats have, and their calls back again.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace tandem {

// What the client calls a function that the model knows under another name.
struct ResponsesTool {
  std::string name;
  std::string name_space;  // empty: none
  bool is_custom = false;  // its input is text, in a function's argument "input"
  std::string param;       // the field it came from
};

struct ResponsesTools {
  nlohmann::ordered_json functions = nlohmann::ordered_json::array();  // as "tools" of chats
  nlohmann::ordered_json choice;                                       // as "tool_choice" of chats, or null
  std::vector<std::string> params;                                     // of each function
  std::map<std::string, ResponsesTool> by_function;

  // As it is known to the client; a function of the same name if it is not among them.
  ResponsesTool Find(const std::string& function_name) const;
};

// A tool of a namespace is a function <namespace>__<name>.
std::string FunctionName(std::string_view name_space, std::string_view name);

// "tools" and "tool_choice" of body. Tools without a schema, which only a vendor's cloud runs, are dropped.
std::optional<ApiError> ReadResponsesTools(const nlohmann::ordered_json& body, ResponsesTools* tools);

// The text of a custom tool's arguments, {"input": text}; the arguments themselves if they are not that.
std::string CustomToolInput(std::string_view arguments);

}  // namespace tandem
