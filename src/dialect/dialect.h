// How a family of models writes calls of tools and reasoning in its text, and how to know which family it is.
// Pure functions; any thread.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tandem {

// A tool that a request offers.
struct ToolSpec {
  std::string name;
  std::string description;
  nlohmann::ordered_json parameters;  // JSON Schema of the arguments; null: any object
  bool strict = false;                // the arguments must follow the schema also where calling is free
};

enum class ToolFormat {
  kNone,         // calls are not looked for
  kHermes,       // <tool_call>{"name": ..., "arguments": {...}}</tool_call>
  kLlamaJson,    // {"name": ..., "parameters": {...}}
  kPythonic,     // [f(a=1, b="x"), g()]
  kMistral,      // [TOOL_CALLS] [{"name": ..., "arguments": {...}}]
  kMistralArgs,  // [TOOL_CALLS]f[ARGS]{...}; it and kMistral are read alike
  kGeneric,      // that of kHermes, explained to the model in the system message (tool_messages.h)
};

// As --tool-call-parser spells it.
std::string_view ToolFormatName(ToolFormat format);
// Errors: kInvalidArgument with the known names.
Result<ToolFormat> ParseToolFormat(std::string_view name);

// The format of a model with this chat template, by the markers that the template writes. kGeneric if it does
// not look at `tools`, or writes calls in a form that is not one of these.
ToolFormat ChooseToolFormat(std::string_view chat_template_source);

// Whether a model with this chat template writes <think>...</think>.
bool ReasoningInTemplate(std::string_view chat_template_source);
// Whether a rendered prompt leaves the model within reasoning.
bool PromptEndsInReasoning(std::string_view prompt);

// Tokens whose text the parser must see although they are special. Those of reasoning are with every format.
std::vector<std::string> MarkersOf(ToolFormat format);

inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kToolCallBegin = "<tool_call>";
inline constexpr std::string_view kToolCallEnd = "</tool_call>";
inline constexpr std::string_view kMistralCalls = "[TOOL_CALLS]";
inline constexpr std::string_view kMistralArguments = "[ARGS]";
inline constexpr std::string_view kMistralCallId = "[CALL_ID]";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
// Around pythonic calls, where a family has such.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kPythonicMarkers = {{
    {"<|python_start|>", "<|python_end|>"},
    {"<|tool_call_start|>", "<|tool_call_end|>"},
}};

}  // namespace tandem
