// Traces of requests whose prompts share beginnings, in the public format of Mooncake.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem {

// Tokens that an id stands for.
inline constexpr int64_t kMooncakeBlockTokens = 512;

struct MooncakeRequest {
  double arrival_s = 0;
  int64_t prompt_tokens = 0;  // at least 1
  int64_t output_tokens = 0;  // at least 1
  std::vector<int64_t>
      block_ids;  // of the prompt's full blocks, perhaps one more of the block that is not full
};

// A JSON object a line, {"timestamp": milliseconds, "input_length": tokens, "output_length": tokens,
// "hash_ids": [...]}; further fields and empty lines are passed over. source: where text comes from, for
// messages. Errors: kMalformedFile, which names the source, the line and the field.
Result<std::vector<MooncakeRequest>> ParseMooncakeTrace(std::string_view text, const std::string& source);

}  // namespace tandem
