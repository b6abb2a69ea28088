// Sends requests at their times, whether or not those before are done.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/request_recorder.h"
#include "bench/request_target.h"
#include "request/request.h"

namespace tandem {

struct OpenLoopOptions {
  std::vector<double> send_times_s;  // from the start; ascending
  // Requests under way at most; those that are due meanwhile wait. 0: no limit. With a limit a request starts
  // when it is sent, else when it was due.
  int64_t max_concurrency = 0;
  double duration_s = 0;  // what was not sent by then is not sent any more; 0: everything is sent
  double deadline_s = 0;  // from a request's start to its end; 0: none
};

// One run. Only on the thread that calls Run, which runs the io_context.
class OpenLoop {
 public:
  // Both outlive the loop. The recorder has as many requests as there are times.
  OpenLoop(boost::asio::io_context* io, RequestRecorder* recorder, OpenLoopOptions options);
  OpenLoop(const OpenLoop&) = delete;
  OpenLoop& operator=(const OpenLoop&) = delete;

  // Before Run: calls `task` so long after the start. The run does not end before.
  void CallAt(double time_s, std::function<void()> task);
  // Until everything that was sent has ended. on_progress: called every interval.
  void Run(RequestTarget* target, std::chrono::milliseconds interval,
           const std::function<void(const RequestRecorder::Progress&)>& on_progress);
  // For the target's callback.
  void OnEnd(int64_t index, RequestEnd end);

  Clock::time_point start() const { return start_; }
  // Requests are sent in their order: the first so many.
  int64_t num_sent() const { return next_; }
  int64_t peak_concurrency() const { return peak_concurrency_; }

 private:
  struct Sent {
    Clock::time_point start;
    bool ended = false;
    bool expired = false;
  };

  Clock::time_point TimeOf(double seconds) const;
  bool HasRoom() const;
  void Advance();
  void SendDue(Clock::time_point now);
  void SendNext(Clock::time_point now);
  void Expire(Clock::time_point now);
  void CallDueTasks(Clock::time_point now);
  void WaitForNext();
  void ShowProgress();
  void FinishIfDone();

  struct Task {
    double time_s = 0;
    std::function<void()> call;
  };

  boost::asio::io_context* const io_;
  RequestRecorder* const recorder_;
  const OpenLoopOptions options_;
  const int64_t num_requests_;
  RequestTarget* target_ = nullptr;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_guard_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer progress_timer_;
  std::chrono::milliseconds progress_interval_{0};
  std::function<void(const RequestRecorder::Progress&)> on_progress_;
  std::vector<Task> tasks_;  // ascending; those before next_task_ have been called
  size_t next_task_ = 0;
  Clock::time_point start_;
  std::vector<Sent> sent_;
  int64_t next_ = 0;    // to be sent
  int64_t oldest_ = 0;  // all before have ended or were cancelled for their deadline
  int64_t num_under_way_ = 0;
  int64_t peak_concurrency_ = 0;
  bool sending_ = true;
  bool finished_ = false;
};

}  // namespace tandem
