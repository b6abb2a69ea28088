// Throughput of a run without its beginning and its end.
#pragma once

#include <optional>
#include <vector>

#include "bench/request_recorder.h"

namespace tandem {

// Between the moments when 20 % and when 80 % of all output tokens had arrived: while the batch fills and
// while it drains, an engine is not what it is in between. Of completed requests.
struct SteadyThroughput {
  double output_tokens_per_s = 0;
  // Prompt tokens for each output token in that time, by the first tokens that arrived, relative to the whole
  // run. Far below 1: the prompts were done before, all requests ran together, and nothing was steady.
  double prefill_share = 0;
};

// nullopt if there is no time between these moments.
std::optional<SteadyThroughput> MeasureSteadyThroughput(const std::vector<RequestRecord>& records);

}  // namespace tandem
