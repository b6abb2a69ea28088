#include "dialect/tool_messages.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string StringAt(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A paragraph behind the others.
void AddParagraph(std::string_view paragraph, std::string* text) {
  if (paragraph.empty()) return;
  if (!text->empty()) text->append("\n\n");
  text->append(paragraph);
}

// One call of an answer, as the model wrote it or could have.
struct PastCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON
};

std::vector<PastCall> CallsOf(const Json& message) {
  std::vector<PastCall> calls;
  const auto read = [&](const Json& function, std::string id) {
    PastCall call{.id = std::move(id), .name = StringAt(function, "name"), .arguments = "{}"};
    if (call.name.empty()) return;
    if (const auto arguments = function.find("arguments"); arguments != function.end()) {
      if (!arguments->is_string()) {
        call.arguments = Dump(*arguments);
      } else if (!arguments->get_ref<const std::string&>().empty()) {
        call.arguments = arguments->get<std::string>();
      }
    }
    calls.push_back(std::move(call));
  };
  if (const auto list = message.find("tool_calls"); list != message.end() && list->is_array()) {
    for (const Json& call : *list) {
      if (!call.is_object()) continue;
      const auto function = call.find("function");
      read(function != call.end() ? *function : call, StringAt(call, "id"));
    }
  }
  // What came before tool_calls.
  if (const auto function = message.find("function_call"); function != message.end()) read(*function, "");
  return calls;
}

std::string CallText(const PastCall& call) {
  return std::string(kToolCallBegin) + "\n{\"name\": " + Dump(call.name) +
         ", \"arguments\": " + call.arguments + "}\n" + std::string(kToolCallEnd);
}

// A list or an object that is JSON already stays so; all else is a string.
std::string ResultAsJson(const std::string& content) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool may_be = first != std::string::npos && (content[first] == '{' || content[first] == '[');
  return may_be && Json::accept(content) ? content : Dump(content);
}

struct ToolResult {
  std::string call_id;
  std::string name;
  std::string content;
};

// The results that answer the calls, in the order of the calls; those that answer none come last.
std::string ResultsText(const std::vector<ToolResult>& results, const std::vector<PastCall>& calls) {
  std::vector<std::pair<size_t, std::string>> texts;  // index of the call, text
  std::vector<bool> is_answered(calls.size(), false);
  for (const ToolResult& result : results) {
    size_t index = 0;
    while (index < calls.size() &&
           (is_answered[index] ||
            (result.call_id.empty() ? !result.name.empty() && result.name != calls[index].name
                                    : result.call_id != calls[index].id))) {
      ++index;
    }
    std::string json = "{";
    if (index < calls.size()) {
      is_answered[index] = true;
      const PastCall& call = calls[index];
      json += "\"name\": " + Dump(call.name) + ", ";
      const auto of_this_name =
          std::ranges::count_if(calls, [&](const PastCall& other) { return other.name == call.name; });
      if (of_this_name > 1) json += "\"arguments\": " + call.arguments + ", ";
    } else if (!result.name.empty()) {
      json += "\"name\": " + Dump(result.name) + ", ";
    }
    json += "\"content\": " + ResultAsJson(result.content) + "}";
    texts.emplace_back(index, "<tool_response>\n" + json + "\n</tool_response>");
  }
  std::ranges::stable_sort(texts, {}, &std::pair<size_t, std::string>::first);
  std::string text;
  for (const auto& [index, one] : texts) text += (text.empty() ? "" : "\n") + one;
  return text;
}

std::string DescribeTools(const std::vector<ToolSpec>& tools) {
  std::string text =
      "# Tools\n\n"
      "These functions can be called. Each line within <tools></tools> is the signature of one, as JSON:\n"
      "<tools>\n";
  for (const Json& tool : ToolsForTemplate(tools)) text += Dump(tool) + "\n";
  text +=
      "</tools>\n\n"
      "To call a function, write its name and its arguments as a JSON object within "
      "<tool_call></tool_call>:\n"
      "<tool_call>\n"
      "{\"name\": <name of the function>, \"arguments\": <object with the arguments>}\n"
      "</tool_call>\n"
      "Its result follows within <tool_response></tool_response>. Answer in plain text where no function is "
      "needed.";
  return text;
}

}  // namespace

std::string TextOfContent(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return content.is_null() ? text : Dump(content);
  for (const Json& part : content) {
    if (part.is_string()) text += part.get<std::string>();
    text += StringAt(part, StringAt(part, "type") == "refusal" ? "refusal" : "text");
  }
  return text;
}

Json RenderToolsAsText(const Json& messages, const std::vector<ToolSpec>& tools) {
  Json rendered = Json::array();
  const auto add = [&](std::string_view role, std::string content) {
    if (!content.empty()) rendered.push_back({{"role", role}, {"content", std::move(content)}});
  };
  std::vector<PastCall> calls;  // of the last answer that had any
  std::vector<ToolResult> results;
  const auto add_results = [&] {
    if (!results.empty()) add("user", ResultsText(std::exchange(results, {}), calls));
  };
  const std::string described = tools.empty() ? "" : DescribeTools(tools);
  bool is_described = false;
  for (const Json& message : messages) {
    if (!message.is_object()) continue;
    const std::string role = StringAt(message, "role");
    std::string content = message.contains("content") ? TextOfContent(message["content"]) : "";
    if (role == "tool" || role == "function") {
      results.push_back({.call_id = StringAt(message, "tool_call_id"),
                         .name = StringAt(message, "name"),
                         .content = std::move(content)});
      continue;
    }
    add_results();
    if (role == "assistant") {
      const std::vector<PastCall> new_calls = CallsOf(message);
      std::string written;
      for (const PastCall& call : new_calls) written += (written.empty() ? "" : "\n") + CallText(call);
      if (!content.empty() && !written.empty()) content += "\n";
      content += written;
      if (!new_calls.empty()) calls = new_calls;
    } else if (rendered.empty() && (role == "system" || role == "developer")) {
      AddParagraph(described, &content);
      is_described = true;
    }
    add(role, std::move(content));
  }
  add_results();
  if (!is_described && !described.empty()) {
    rendered.insert(rendered.begin(), Json{{"role", "system"}, {"content", described}});
  }
  return rendered;
}

Json ToolsForTemplate(const std::vector<ToolSpec>& tools) {
  Json list = Json::array();
  for (const ToolSpec& tool : tools) {
    Json function = {{"name", tool.name}};
    if (!tool.description.empty()) function["description"] = tool.description;
    function["parameters"] = tool.parameters.is_object()
                                 ? tool.parameters
                                 : Json{{"type", "object"}, {"properties", Json::object()}};
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return list;
}

}  // namespace tandem
