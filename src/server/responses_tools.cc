#include "server/responses_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/field_reader.h"
#include "server/json_text.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

ordered_json CustomToolSchema() {
  return {{"type", "object"},
          {"properties", {{"input", {{"type", "string"}}}}},
          {"required", ordered_json::array({"input"})},
          {"additionalProperties", false}};
}

class ToolsReader {
 public:
  explicit ToolsReader(ResponsesTools* tools) : tools_(*tools) {}

  std::optional<ApiError> ReadList(const ordered_json& list, const std::string& param,
                                   const std::string& name_space);
  std::optional<ApiError> ReadChoice(const ordered_json& choice);

 private:
  std::optional<ApiError> ReadTool(const ordered_json& tool, const std::string& param,
                                   const std::string& name_space);
  std::optional<ApiError> ReadNamed(const ordered_json& tool, bool is_custom, const std::string& param,
                                    const std::string& name_space);
  // The function that {"type", "name"} names.
  std::optional<ApiError> ReadReference(const ordered_json& reference, const std::string& param,
                                        std::string* function_name);
  std::optional<ApiError> ReadAllowedTools(const ordered_json& choice);

  ResponsesTools& tools_;
};

std::optional<ApiError> ToolsReader::ReadList(const ordered_json& list, const std::string& param,
                                              const std::string& name_space) {
  if (!list.is_array()) {
    return InvalidRequest(param, fmt::format("{} must be a list, not {}", param, JsonTypeName(list)));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    if (auto error = ReadTool(list[i], fmt::format("{}[{}]", param, i), name_space)) return error;
  }
  return std::nullopt;
}

std::optional<ApiError> ToolsReader::ReadTool(const ordered_json& tool, const std::string& param,
                                              const std::string& name_space) {
  if (!tool.is_object()) {
    return InvalidRequest(param, fmt::format("{} must be an object, not {}", param, JsonTypeName(tool)));
  }
  FieldReader reader(tool, param + ".");
  const auto type = reader.String("type");
  if (reader.error()) return reader.error();
  if (!type) return InvalidRequest(param + ".type", param + ".type is missing");
  if (*type == "function") return ReadNamed(tool, false, param, name_space);
  if (*type == "custom") return ReadNamed(tool, true, param, name_space);
  if (*type == "namespace" && name_space.empty()) {
    const auto name = reader.String("name");
    if (reader.error()) return reader.error();
    if (name.value_or("").empty()) return InvalidRequest(param + ".name", param + ".name is missing");
    const ordered_json* members = reader.Find("tools");
    return members == nullptr ? std::nullopt : ReadList(*members, param + ".tools", *name);
  }
  if (reader.Find("parameters") == nullptr) return std::nullopt;
  return InvalidRequest(
      param + ".type",
      fmt::format("{}.type: \"{}\" is not known; tools with parameters have the type \"function\"", param,
                  *type));
}

std::optional<ApiError> ToolsReader::ReadNamed(const ordered_json& tool, bool is_custom,
                                               const std::string& param, const std::string& name_space) {
  FieldReader reader(tool, param + ".");
  const auto name = reader.String("name");
  const auto description = reader.String("description");
  if (!is_custom && !name && reader.Find("function") != nullptr) {
    reader.Fail("function", param + ".function: name and parameters belong beside type in this API");
  }
  const ordered_json* format = reader.Object("format");
  if (is_custom && format != nullptr && format->value("type", ordered_json("text")) != "text") {
    reader.Fail("format", param + ".format: inputs of custom tools can only be text, not of a grammar");
  }
  if (reader.error()) return reader.error();
  if (name.value_or("").empty()) return InvalidRequest(param + ".name", param + ".name is missing");
  const std::string function_name = FunctionName(name_space, *name);
  ordered_json function = {{"name", function_name}};
  if (description) function["description"] = *description;
  if (is_custom) {
    function["parameters"] = CustomToolSchema();
  } else {
    for (const char* const key : {"parameters", "strict"}) {
      if (const ordered_json* value = reader.Find(key)) function[key] = *value;
    }
  }
  const bool is_new =
      tools_.by_function
          .emplace(
              function_name,
              ResponsesTool{.name = *name, .name_space = name_space, .is_custom = is_custom, .param = param})
          .second;
  if (!is_new) {
    return InvalidRequest(param + ".name",
                          fmt::format("{}.name: there is another tool named {}", param, function_name));
  }
  tools_.functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  tools_.params.push_back(param);
  return std::nullopt;
}

std::optional<ApiError> ToolsReader::ReadReference(const ordered_json& reference, const std::string& param,
                                                   std::string* function_name) {
  if (!reference.is_object()) {
    return InvalidRequest(param, fmt::format("{} must be an object, not {}", param, JsonTypeName(reference)));
  }
  FieldReader reader(reference, param + ".");
  const auto type = reader.String("type");
  const auto name = reader.String("name");
  const auto name_space = reader.String("namespace");
  if (reader.error()) return reader.error();
  if (type != "function" && type != "custom") {
    return InvalidRequest(param + ".type",
                          fmt::format("{}.type: only \"function\" and \"custom\" tools can be chosen, not {}",
                                      param, type ? '"' + *type + '"' : "null"));
  }
  if (!name) return InvalidRequest(param + ".name", param + ".name is missing");
  *function_name = FunctionName(name_space.value_or(""), *name);
  if (!tools_.by_function.contains(*function_name)) {
    return InvalidRequest(param + ".name",
                          fmt::format("{}.name: tools has no function {}", param, *function_name));
  }
  return std::nullopt;
}

std::optional<ApiError> ToolsReader::ReadAllowedTools(const ordered_json& choice) {
  constexpr auto kModes = std::to_array<std::string_view>({"auto", "required"});
  FieldReader reader(choice, "tool_choice.");
  const auto mode = reader.OneOf("mode", kModes);
  if (reader.error()) return reader.error();
  const ordered_json* allowed = reader.Find("tools");
  if (allowed == nullptr || !allowed->is_array()) {
    return InvalidRequest("tool_choice.tools", "tool_choice.tools must be a list");
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < allowed->size(); ++i) {
    const ordered_json& reference = (*allowed)[i];
    // Those that were dropped from tools are not missed here.
    const auto type = reference.is_object() ? reference.find("type") : reference.end();
    if (reference.is_object() && type != reference.end() && *type != "function" && *type != "custom")
      continue;
    std::string name;
    if (auto error = ReadReference(reference, fmt::format("tool_choice.tools[{}]", i), &name)) return error;
    names.push_back(std::move(name));
  }
  ordered_json functions = ordered_json::array();
  std::vector<std::string> params;
  for (size_t i = 0; i < tools_.functions.size(); ++i) {
    const auto& name = tools_.functions[i]["function"]["name"].get_ref<const std::string&>();
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    functions.push_back(std::move(tools_.functions[i]));
    params.push_back(std::move(tools_.params[i]));
  }
  tools_.functions = std::move(functions);
  tools_.params = std::move(params);
  tools_.choice = mode.value_or("auto");
  return std::nullopt;
}

std::optional<ApiError> ToolsReader::ReadChoice(const ordered_json& choice) {
  if (choice.is_string()) {
    if (choice != "none" && choice != "auto" && choice != "required") {
      return InvalidRequest(
          "tool_choice",
          "tool_choice must be \"none\", \"auto\", \"required\" or an object that names a tool");
    }
    tools_.choice = choice;
    return std::nullopt;
  }
  if (choice.is_object() && choice.value("type", ordered_json()) == "allowed_tools") {
    return ReadAllowedTools(choice);
  }
  std::string name;
  if (auto error = ReadReference(choice, "tool_choice", &name)) return error;
  tools_.choice = {{"type", "function"}, {"function", {{"name", name}}}};
  return std::nullopt;
}

}  // namespace

ResponsesTool ResponsesTools::Find(const std::string& function_name) const {
  const auto found = by_function.find(function_name);
  return found == by_function.end() ? ResponsesTool{.name = function_name, .name_space = {}, .param = {}}
                                    : found->second;
}

std::string FunctionName(std::string_view name_space, std::string_view name) {
  while (name_space.ends_with('_')) name_space.remove_suffix(1);
  return name_space.empty() ? std::string(name) : fmt::format("{}__{}", name_space, name);
}

std::optional<ApiError> ReadResponsesTools(const ordered_json& body, ResponsesTools* tools) {
  FieldReader reader(body);
  ToolsReader tools_reader(tools);
  if (const ordered_json* list = reader.Find("tools")) {
    if (auto error = tools_reader.ReadList(*list, "tools", "")) return error;
  }
  if (const ordered_json* choice = reader.Find("tool_choice")) {
    if (auto error = tools_reader.ReadChoice(*choice)) return error;
  }
  // With nothing to choose from, these ask for nothing.
  if (tools->functions.empty() && (tools->choice == "auto" || tools->choice == "none"))
    tools->choice = nullptr;
  return std::nullopt;
}

std::string CustomToolInput(std::string_view arguments) {
  const auto parsed = ParseJson(arguments);
  if (!parsed.ok() || !parsed->is_object()) return std::string(arguments);
  const auto input = parsed->find("input");
  if (input == parsed->end() || !input->is_string()) return std::string(arguments);
  return input->get<std::string>();
}

}  // namespace tandem
