// Calls that a grammar makes the model write: structural tags, as xgrammar reads them
// ({"type": "structural_tag", "format": {...}}). What they admit, MakeAnswerParser's parser reads as calls.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "dialect/dialect.h"
#include "dialect/tool_choice.h"

namespace tandem {

// Where an answer may hold reasoning; the grammar leaves it free.
enum class ReasoningPlace {
  kNone,
  kMayBegin,  // the answer may begin with <think>
  kInside,    // it begins within reasoning
};

struct CallTagOptions {
  ToolFormat format = ToolFormat::kHermes;  // not kNone
  ReasoningPlace reasoning = ReasoningPlace::kNone;
  bool parallel = true;  // several calls may be written
};

// One call (or several, if parallel and no function was named) of the tools that choice allows, with
// arguments that follow their schema, and nothing else after the reasoning. There must be such a tool.
nlohmann::ordered_json ForcedCallTag(const std::vector<ToolSpec>& tools, const ToolChoice& choice,
                                     const CallTagOptions& options);

// The answer is free, but a call that begins is one of a tool that choice allows; its arguments follow the
// schema if the tool is strict, and are some object otherwise. null if no such tool is strict: then there is
// nothing to enforce.
nlohmann::ordered_json AutoCallTag(const std::vector<ToolSpec>& tools, const ToolChoice& choice,
                                   const CallTagOptions& options);

// The tag of an answer whose part behind the reasoning is `rest`, the format of a structural tag.
nlohmann::ordered_json TagAfterReasoning(ReasoningPlace place, nlohmann::ordered_json rest);

}  // namespace tandem
