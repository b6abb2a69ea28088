#include "bench/steady_throughput.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tandem {
namespace {

struct TokenArrival {
  double time_s = 0;          // since the first request's start
  int64_t prompt_tokens = 0;  // of a request whose first token it is
};

std::vector<TokenArrival> CollectArrivals(const std::vector<RequestRecord>& records) {
  std::vector<TokenArrival> arrivals;
  for (const RequestRecord& record : records) {
    if (!record.completed() || record.output_tokens == 0) continue;
    double now_s = std::chrono::duration<double>(record.first_token - records.front().start).count();
    arrivals.push_back({.time_s = now_s, .prompt_tokens = record.prompt_tokens});
    for (const float gap_ms : record.inter_token_ms) {
      now_s += static_cast<double>(gap_ms) / 1e3;
      arrivals.push_back({.time_s = now_s});
    }
  }
  std::sort(arrivals.begin(), arrivals.end(),
            [](const TokenArrival& a, const TokenArrival& b) { return a.time_s < b.time_s; });
  return arrivals;
}

}  // namespace

std::optional<SteadyThroughput> MeasureSteadyThroughput(const std::vector<RequestRecord>& records) {
  const std::vector<TokenArrival> arrivals = CollectArrivals(records);
  if (arrivals.empty()) return std::nullopt;
  const double begin_s = arrivals[arrivals.size() / 5].time_s;
  const double end_s = arrivals[arrivals.size() * 4 / 5].time_s;
  if (!(end_s > begin_s)) return std::nullopt;
  // Tokens of one iteration arrive together: those of the last belong to the time, those of the first do not.
  double output_tokens = 0;
  double prompt_tokens = 0;
  double all_prompt_tokens = 0;
  for (const TokenArrival& arrival : arrivals) {
    const auto prompt_len = static_cast<double>(arrival.prompt_tokens);
    all_prompt_tokens += prompt_len;
    if (arrival.time_s <= begin_s || arrival.time_s > end_s) continue;
    output_tokens += 1;
    prompt_tokens += prompt_len;
  }
  const double per_output = all_prompt_tokens / static_cast<double>(arrivals.size());
  return SteadyThroughput{.output_tokens_per_s = output_tokens / (end_s - begin_s),
                          .prefill_share = prompt_tokens / output_tokens / per_output};
}

}  // namespace tandem
