// Messages with tools, for templates that know no tools: all of it becomes text of system, user and
// assistant.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dialect/dialect.h"

namespace tandem {

// ToolFormat::kGeneric. The tools are described at the end of the system message, which is put in front if
// there is none; calls of past answers become text in the form that the parser reads, after the answer's own
// text; results of tools (roles tool and function) become a user's message with <tool_response> for each, in
// the order of their calls, with the name of the function, and where it was called more than once with the
// arguments. Without tools, nothing is described. Contents that are lists of parts become their text. The
// result has the roles system, user and assistant (and developer, see NormalizeMessages), contents that are
// strings, and no empty message.
//
// messages: as in a chat completion; what is malformed in them is rendered as far as it can be.
nlohmann::ordered_json RenderToolsAsText(const nlohmann::ordered_json& messages,
                                         const std::vector<ToolSpec>& tools);

// The text of a message's content: a string, or the texts of a list of parts; empty for null.
std::string TextOfContent(const nlohmann::ordered_json& content);

// "tools" as templates want them: [{"type": "function", "function": {...}}].
nlohmann::ordered_json ToolsForTemplate(const std::vector<ToolSpec>& tools);

}  // namespace tandem
