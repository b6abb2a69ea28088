// Traces of request lengths as CSV.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/workload.h"

namespace tandem {

// The first line names the columns, in any order: prompt_tokens, output_tokens and perhaps arrival_s; others
// are passed over. Each further line is a request. source: where text comes from, for messages. Errors:
// kMalformedFile, which names the source, the line and the column.
Result<std::vector<WorkloadRequest>> ParseTraceCsv(std::string_view text, const std::string& source);

}  // namespace tandem
