// Traces of request lengths as CSV.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem {

struct TraceRequest {
  int64_t prompt_tokens = 0;        // at least 1
  int64_t output_tokens = 0;        // at least 1
  std::optional<double> arrival_s;  // absent if the trace has none
};

// The first line names the columns, in any order: prompt_tokens, output_tokens and perhaps arrival_s; others
// are passed over. Each further line is a request. source: where text comes from, for messages. Errors:
// kMalformedFile, which names the source, the line and the column.
Result<std::vector<TraceRequest>> ParseTraceCsv(std::string_view text, const std::string& source);

}  // namespace tandem
