// Begins sessions at their times, whether or not those before are done; a turn is sent when the one before
// was answered and its pause is over.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "bench/request_loop.h"
#include "bench/session_histories.h"
#include "bench/workload.h"

namespace tandem {

// A turn that fails, or whose answer is not known, ends its session. When the duration is over no session
// begins; those that have begun go on unless they are to end with it.
class SessionLoop final : public RequestLoop {
 public:
  // requests: of a workload of sessions, whose recorder has them. start_times_s: a session each, from the
  // start, ascending. What is passed by pointer or reference outlives the loop. The target knows the first
  // turns' prompts.
  SessionLoop(boost::asio::io_context* io, RequestRecorder* recorder,
              const std::vector<WorkloadRequest>& requests, std::vector<double> start_times_s,
              SessionHistories* histories, const RequestLoopOptions& options);

  void OnEnd(int64_t index, RequestEnd end) override;

 protected:
  std::optional<DueRequest> NextDue() const override;
  void TakeNext() override;
  void StopBeginning() override;
  void OnCompleted(int64_t index) override;

 private:
  struct DueLater {
    bool operator()(const DueRequest& a, const DueRequest& b) const { return a.due > b.due; }
  };

  // Whether the next to be sent is a first turn.
  bool BeginsNext() const;

  const std::vector<WorkloadRequest>& requests_;
  const std::vector<double> start_times_s_;
  SessionHistories* const histories_;
  const bool end_sessions_;
  bool is_over_ = false;              // no later turn is sent
  std::vector<int64_t> first_turns_;  // of each session
  size_t next_ = 0;                   // session to begin
  size_t end_ = 0;                    // no session from here on begins
  std::priority_queue<DueRequest, std::vector<DueRequest>, DueLater> later_turns_;
};

}  // namespace tandem
