// What all loops that send a benchmark's requests have in common: time, room, deadlines, ends. Which request
// is due next is the loop's own.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/request_recorder.h"
#include "bench/request_target.h"
#include "request/request.h"

namespace tandem {

struct RequestLoopOptions {
  // Requests under way at most; those that are due meanwhile wait. 0: no limit. With a limit a request starts
  // when it is sent, else when it was due.
  int64_t max_concurrency = 0;
  double duration_s = 0;      // after that nothing is begun any more; 0: everything is
  bool end_sessions = false;  // nor are sessions that have begun gone on with
  // From a request's start to its end, but not before sessions that are ended have had as long; 0: none.
  double deadline_s = 0;
};

// One run. Only on the thread that calls Run, which runs the io_context.
class RequestLoop {
 public:
  // Both outlive the loop.
  RequestLoop(boost::asio::io_context* io, RequestRecorder* recorder, int64_t num_requests,
              RequestLoopOptions options);
  virtual ~RequestLoop() = default;
  RequestLoop(const RequestLoop&) = delete;
  RequestLoop& operator=(const RequestLoop&) = delete;

  // Before Run: calls `task` so long after the start. The run does not end before.
  void CallAt(double time_s, std::function<void()> task);
  // Until everything that was sent has ended. on_progress: called every interval.
  void Run(RequestTarget* target, std::chrono::milliseconds interval,
           const std::function<void(const RequestRecorder::Progress&)>& on_progress);
  // For the target's callback.
  virtual void OnEnd(int64_t index, RequestEnd end);

  Clock::time_point start() const { return start_; }
  bool WasSent(int64_t index) const { return requests_[static_cast<size_t>(index)].sent; }
  int64_t peak_concurrency() const { return peak_concurrency_; }

 protected:
  struct DueRequest {
    int64_t index = 0;
    Clock::time_point due;
  };
  // The one that is sent next, as far as that is known; never due before one that was sent.
  virtual std::optional<DueRequest> NextDue() const = 0;
  // It is being sent.
  virtual void TakeNext() = 0;
  // The duration is over. What is due from now on is not sent, but for later turns unless these end too.
  virtual void StopBeginning() = 0;
  // It has ended and all its tokens came.
  virtual void OnCompleted(int64_t /*index*/) {}

  Clock::time_point TimeOf(double seconds) const;
  RequestTarget* target() const { return target_; }

 private:
  struct State {
    Clock::time_point start;
    bool sent = false;
    bool ended = false;
    bool expired = false;
  };
  struct Task {
    double time_s = 0;
    std::function<void()> call;
  };

  bool HasRoom() const;
  Clock::time_point DeadlineOf(const State& request) const;
  void Advance();
  void SendDue(Clock::time_point now);
  void SendNext(const DueRequest& request, Clock::time_point now);
  void Expire(Clock::time_point now);
  void CallDueTasks(Clock::time_point now);
  void WaitForNext();
  void ShowProgress();
  void FinishIfDone();

  boost::asio::io_context* const io_;
  RequestRecorder* const recorder_;
  const RequestLoopOptions options_;
  RequestTarget* target_ = nullptr;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_guard_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer progress_timer_;
  std::chrono::milliseconds progress_interval_{0};
  std::function<void(const RequestRecorder::Progress&)> on_progress_;
  std::vector<Task> tasks_;  // ascending; those before next_task_ have been called
  size_t next_task_ = 0;
  Clock::time_point start_;
  std::vector<State> requests_;
  std::vector<int64_t> sent_;  // in the order of their starts
  size_t oldest_ = 0;          // all that were sent before have ended or were cancelled for their deadline
  int64_t num_under_way_ = 0;
  int64_t peak_concurrency_ = 0;
  bool beginning_ = true;
  bool finished_ = false;
};

}  // namespace tandem
