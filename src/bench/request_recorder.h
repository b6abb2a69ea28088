// When the tokens of a benchmark's requests arrived, from whatever client sends them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "request/request.h"

namespace tandem {

struct RequestRecord {
  int64_t prompt_tokens = 0;
  bool begun = false;       // WorkloadRequest::begun: then prompt and made tokens were taken as computed
  int64_t made_tokens = 0;  // of the whole output, before those that follow
  int64_t wanted_output_tokens = 0;
  std::optional<SessionTurn> turn;
  int64_t output_tokens = 0;  // that have arrived
  Clock::time_point start;    // when it was sent (or should have been, if the client was late)
  Clock::time_point due;
  double send_delay_ms = 0;  // from when it was due to when it was sent
  Clock::time_point first_token;
  Clock::time_point last_token;
  std::vector<float> inter_token_ms;      // from each token to the next: output_tokens - 1 values
  std::vector<bool> in_cpu_tier;          // for each token whether the request's KV lay there
  std::optional<uint64_t> output_digest;  // of the token ids in their order; absent if nobody said which
  bool ended = false;
  bool cancelled = false;  // by the benchmark, as its time was over
  bool rejected = false;   // not accepted by whoever should have worked it off; error says why
  std::string error;       // why it failed; empty if it did not
  // Tokens of the prompt that a prefix cache had; absent if nobody says.
  std::optional<int64_t> cached_tokens;
  // That one without an end would have had; absent where prompts share nothing.
  std::optional<int64_t> possible_hit_tokens;
  // Of these, what requests that run at the same time may have in common.
  int64_t shared_tokens = 0;

  bool completed() const { return ended && !cancelled && error.empty(); }
};

// When a request starts, as latencies have it, when it should have been sent, and when it was.
struct SendTimes {
  Clock::time_point start;
  Clock::time_point due;
  Clock::time_point sent;
};

// Start, AddTokens and End of one request come in this order, from one thread at a time; different requests
// may come from different threads. Requests go by their index in the workload.
class RequestRecorder {
 public:
  explicit RequestRecorder(const std::vector<WorkloadRequest>& requests);

  void Start(int64_t index, const SendTimes& times);
  // It was sent when it was due.
  void Start(int64_t index, Clock::time_point now) { Start(index, {.start = now, .due = now, .sent = now}); }
  void AddTokens(int64_t index, int64_t num_tokens, bool in_cpu_tier, Clock::time_point now);
  // Beside AddTokens: which token it was.
  void DigestToken(int64_t index, int32_t token);
  // error: empty if all went well; a request that got another number of tokens than it wanted has failed too.
  // What the request recorded is visible to whoever learns of the end through this class.
  void End(int64_t index, std::string error);
  // Before End.
  void SetCachedTokens(int64_t index, int64_t num_tokens);
  // In place of End: it was not accepted.
  void Reject(int64_t index, std::string reason);
  // In place of End: the benchmark itself has ended the request.
  void Cancel(int64_t index);
  // After its end.
  bool HasCompleted(int64_t index) const { return records_[static_cast<size_t>(index)].completed(); }

  struct Progress {
    int64_t ended = 0;
    int64_t failed = 0;         // of those that have ended
    int64_t rejected = 0;       // likewise; they are no failures
    int64_t output_tokens = 0;  // of the requests that have ended
  };
  // Blocks until all requests have ended or the timeout is over.
  Progress WaitFor(std::chrono::milliseconds timeout);

  // Those behind the first `count` were never sent, and never will be.
  void KeepFirst(int64_t count);

  // Once all have ended.
  std::vector<RequestRecord> TakeRecords();

 private:
  void CountEnd(RequestRecord* record);

  std::vector<RequestRecord> records_;

  std::mutex mutex_;
  std::condition_variable all_ended_;
  Progress progress_;
};

}  // namespace tandem
