// Which of the offered tools an answer may or must call: "tool_choice" of a request.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "dialect/dialect.h"

namespace tandem {

struct ToolChoice {
  enum class Mode { kAuto, kNone, kRequired };
  Mode mode = Mode::kAuto;
  // Those that may be called; empty: all that are offered.
  std::vector<std::string> allowed;
  // One function was named: exactly one call of it, whatever parallel_tool_calls says.
  bool is_named = false;

  bool Allows(std::string_view name) const;
};

// "none", "auto", "required", {"type": "function", "function": {"name": ...}} (or its "name" beside "type",
// as in the Responses API), {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}} (or
// mode and tools beside "type"). null is auto. Errors: kInvalidArgument with param "tool_choice"; also for a
// name that tools lacks.
Result<ToolChoice> ParseToolChoice(const nlohmann::ordered_json& value, const std::vector<ToolSpec>& tools);

// The tools that choice allows, in their order; none for kNone.
std::vector<ToolSpec> AllowedTools(const std::vector<ToolSpec>& tools, const ToolChoice& choice);

}  // namespace tandem
