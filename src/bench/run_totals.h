// What a run adds up to: counts and latencies, of all requests and of each tier.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/bench_run.h"

namespace tandem {

// A tier's part.
struct TierTotals {
  int64_t output_tokens = 0;
  int64_t requests = 0;         // completed, most of whose tokens (behind the first) came from this tier
  std::vector<double> tpot_ms;  // of those requests
  std::vector<double> itl_ms;   // to each token from this tier, from the one before
};

// Without a window: of the completed requests. With one: tokens that arrive in it, whosoever they are, and
// requests that end in it. With one by due time these are what throughput is made of, and latencies and
// `completed` are those of the completed requests that start in it. Requests that had begun before the run
// count no input, and have no time to the first token and none as a whole.
struct RunTotals {
  int64_t completed = 0;
  int64_t ended = 0;       // completed requests that throughput is made of
  int64_t counted = 0;     // requests whose end, good or bad, is looked at: all, or those that start in it
  int64_t failed = 0;      // in the whole run
  int64_t rejected = 0;    // in the whole run; they are no failures
  int64_t unfinished = 0;  // when the time was over
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<double> send_delay_ms;  // of the counted requests
  std::vector<double> ttft_ms;
  std::vector<double> tpot_ms;
  std::vector<double> itl_ms;
  std::vector<double> e2el_ms;
  std::vector<double> per_token_s;
  TierTotals gpu_tier;
  TierTotals cpu_tier;
};

RunTotals AddUpRun(const BenchRun& run);

// Whether the request is one of those whose latencies count, if that goes by its start.
bool StartCounts(const RequestRecord& record, const std::optional<BenchWindow>& window);

// The lengths, as the workload has them, of the requests that had a part in the totals. Of a window amid work
// that is all there: of all requests, as it is chance and the strategy's choice who has a part in it, mostly
// long ones.
std::vector<WorkloadRequest> CountedRequests(const BenchRun& run);

}  // namespace tandem
