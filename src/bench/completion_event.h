// One event of a streamed completion, as far as a benchmark looks at it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem {

struct CompletionEvent {
  bool has_choice = false;
  bool has_text = false;      // the choice's text is not empty
  std::string finish_reason;  // empty: null or absent
  // Tokens of the answer so far, if the event has a usage.
  std::optional<int64_t> completion_tokens;
  // Tokens of the prompt that a prefix cache had, if the event has a usage that says so.
  std::optional<int64_t> cached_tokens;
  std::vector<int32_t> token_ids;  // of the choice, where the server was asked for them
  std::string error;               // what the server says went wrong; empty if nothing did
};

// text: the data of an event of /v1/completions. Of several choices the last one counts. Errors
// (kInvalidArgument): it is no JSON object.
Result<CompletionEvent> ParseCompletionEvent(std::string_view text);

// The message of an error body: {"error": {"message": ...}}, {"error": "..."}, {"message": ...} or
// {"detail": ...}. What is none of these is taken as text, cut off where it gets long.
std::string ErrorMessageOf(std::string_view body);

}  // namespace tandem
