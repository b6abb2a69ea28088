// Calls as Mistral's models write them: [TOOL_CALLS] and a list of call objects, or [TOOL_CALLS]f[ARGS]{...}
// for each call, with or without [ARGS] and with the [CALL_ID] of some models. Both are read, whichever model
// it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dialect/json_call.h"

namespace tandem {

class MistralSyntax : public JsonBlockSyntax {
 public:
  explicit MistralSyntax(std::vector<std::string> tools);
  CallHead MatchHead(std::string_view text, bool in_block) const override;
  CallTail MatchTail(std::string_view text, bool is_object) const override;
};

}  // namespace tandem
