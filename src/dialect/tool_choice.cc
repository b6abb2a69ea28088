#include "dialect/tool_choice.h"

#include <algorithm>
#include <iterator>

#include "base/param_error.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Args>
Error ChoiceError(fmt::format_string<Args...> format, Args&&... args) {
  return MakeParamError(ErrorCode::kInvalidArgument, "tool_choice", format, std::forward<Args>(args)...);
}

bool IsOffered(const std::vector<ToolSpec>& tools, std::string_view name) {
  return std::ranges::any_of(tools, [&](const ToolSpec& tool) { return tool.name == name; });
}

Result<ToolChoice::Mode> ParseMode(const Json& value) {
  if (value == "auto") return ToolChoice::Mode::kAuto;
  if (value == "none") return ToolChoice::Mode::kNone;
  if (value == "required" || value == "any") return ToolChoice::Mode::kRequired;
  return ChoiceError(
      "tool_choice must be \"none\", \"auto\", \"required\" or an object that names functions");
}

// The name in {"type": "function", ...}, within "function" or beside "type".
Result<std::string> ParseFunctionName(const Json& value, const std::vector<ToolSpec>& tools) {
  if (!value.is_object() || value.value("type", Json("function")) != "function") {
    return ChoiceError("tool_choice can name tools of type \"function\" only");
  }
  const Json function = value.value("function", Json());
  const Json name = function.is_object() ? function.value("name", Json()) : value.value("name", Json());
  if (!name.is_string()) return ChoiceError("tool_choice lacks the name of the function");
  const auto& text = name.get_ref<const std::string&>();
  if (!IsOffered(tools, text))
    return ChoiceError("tool_choice names '{}', which is not one of the tools", text);
  return text;
}

Result<ToolChoice> ParseAllowedTools(const Json& value, const std::vector<ToolSpec>& tools) {
  const Json inner = value.value("allowed_tools", Json());
  const Json& list = inner.is_object() ? inner : value;
  ToolChoice choice;
  TANDEM_ASSIGN_OR_RETURN(choice.mode, ParseMode(list.value("mode", Json("auto"))));
  const Json allowed = list.value("tools", Json());
  if (!allowed.is_array() || allowed.empty())
    return ChoiceError("tool_choice lacks the list of allowed tools");
  for (const Json& tool : allowed) {
    TANDEM_ASSIGN_OR_RETURN(std::string name, ParseFunctionName(tool, tools));
    choice.allowed.push_back(std::move(name));
  }
  return choice;
}

}  // namespace

bool ToolChoice::Allows(std::string_view name) const {
  if (mode == Mode::kNone) return false;
  return allowed.empty() || std::ranges::find(allowed, name) != allowed.end();
}

Result<ToolChoice> ParseToolChoice(const Json& value, const std::vector<ToolSpec>& tools) {
  ToolChoice choice;
  if (value.is_null()) return choice;
  if (!value.is_object()) {
    TANDEM_ASSIGN_OR_RETURN(choice.mode, ParseMode(value));
    if (choice.mode == ToolChoice::Mode::kRequired && tools.empty()) {
      return ChoiceError("tool_choice requires a call, but there are no tools");
    }
    return choice;
  }
  if (value.value("type", Json()) == "allowed_tools") return ParseAllowedTools(value, tools);
  TANDEM_ASSIGN_OR_RETURN(std::string name, ParseFunctionName(value, tools));
  choice.mode = ToolChoice::Mode::kRequired;
  choice.allowed = {std::move(name)};
  choice.is_named = true;
  return choice;
}

std::vector<ToolSpec> AllowedTools(const std::vector<ToolSpec>& tools, const ToolChoice& choice) {
  std::vector<ToolSpec> allowed;
  std::ranges::copy_if(tools, std::back_inserter(allowed),
                       [&](const ToolSpec& tool) { return choice.Allows(tool.name); });
  return allowed;
}

}  // namespace tandem
